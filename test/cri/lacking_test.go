package cri

import "os"

// lacking are the specs that cannot pass here, each with its reason. All others
// must.
func lacking() map[string]string {
	specs := make(map[string]string)
	for _, name := range nri {
		specs[name] = "berth has no plugins of the Node Resource Interface: they would be asked in the midst of each start, by processes that no one watches"
	}
	// Where the kernel has it, as on Debian and Ubuntu, the specs run.
	if enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled"); len(enabled) == 0 || enabled[0] != 'Y' {
		for _, name := range appArmor {
			specs[name] = "this machine's kernel runs without AppArmor"
		}
	}
	return specs
}

var nri = []string{
	"[k8s.io] NRI CreateContainer contract should fail CreateContainer when the NRI hook errors, leak nothing, and allow retry",
	"[k8s.io] NRI CreateContainer contract should not expose container while CreateContainer hook is in progress",
	"[k8s.io] NRI RunPodSandbox contract should fail RunPodSandbox and clean up when the NRI hook errors, then allow retry",
	"[k8s.io] NRI RunPodSandbox contract should not expose sandbox while RunPodSandbox hook is in progress",
	"[k8s.io] NRI RunPodSandbox contract should not start workload containers until RunPodSandbox hook completes",
	"[k8s.io] NRI StopPodSandbox contract should handle StopPodSandbox idempotently and never reuse sandbox",
	"[k8s.io] NRI StopPodSandbox contract should stop all workload containers and keep sandbox accessible while StopPodSandbox hook is in progress",
	"[k8s.io] NRI container lifecycle (failed container) should receive CreateContainer, StartContainer, StopContainer, and RemoveContainer for a container that exits with a non-zero code",
	"[k8s.io] NRI container lifecycle should receive CreateContainer, StartContainer, StopContainer, and RemoveContainer in strict order with correct metadata",
	"[k8s.io] NRI plugin synchronization should receive a callback for container created during the Synchronize call",
	"[k8s.io] NRI plugin synchronization should receive information about all containers without the race condition during initialization",
	"[k8s.io] NRI plugin synchronization should synchronize a newly connected plugin with existing pods and containers",
	"[k8s.io] NRI pod sandbox lifecycle should receive RunPodSandbox, StopPodSandbox, and RemovePodSandbox in strict order with correct metadata",
}

var appArmor = []string{
	"[k8s.io] AppArmor runtime should prefer new apparmor field should enforce a apparmor_profile blocking writes",
	"[k8s.io] AppArmor runtime should prefer new apparmor field should fail with an unloaded apparmor_profile",
	"[k8s.io] AppArmor runtime should prefer new apparmor field should work with apparmor profile",
	"[k8s.io] AppArmor runtime should support apparmor field should enforce a apparmor_profile blocking writes",
	"[k8s.io] AppArmor runtime should support apparmor field should enforce a permissive deprecated profile",
	"[k8s.io] AppArmor runtime should support apparmor field should fail with an unloaded apparmor_profile",
	"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should enforce a apparmor_profile blocking writes",
	"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should enforce a permissive deprecated profile",
	"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should fail with an unloaded apparmor_profile",
}
