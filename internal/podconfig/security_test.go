package podconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestProfiles(t *testing.T) {
	const prefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	local := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
	}
	none := local(runtimeapi.SecurityProfile_Unconfined, "")
	byRuntime := local(runtimeapi.SecurityProfile_RuntimeDefault, "")
	tests := map[string]struct {
		seccompDefault bool
		pod            corev1.PodSecurityContext
		container      corev1.SecurityContext
		annotations    map[string]string
		seccomp        *runtimeapi.SecurityProfile
		appArmor       *runtimeapi.SecurityProfile
		old            string // the former spelling of AppArmor's
		wantErr        string
	}{
		"nothing is unconfined":       {seccomp: none},
		"unless the node defaults it": {seccompDefault: true, seccomp: byRuntime},
		"the pod's seccomp":           {pod: corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}}, seccomp: byRuntime},
		"the container's counts more": {
			seccompDefault: true,
			pod:            corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
			container:      corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"}}, seccomp: none},
		"an unknown seccomp type": {pod: corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "X"}}, wantErr: `unknown type "X"`},
		"the pod's AppArmor":      {pod: corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Unconfined"}}, seccomp: none, appArmor: none, old: "unconfined"},
		"the annotation counts more than the pod": {
			pod:         corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Unconfined"}},
			annotations: map[string]string{prefix + "app": "localhost/mine"}, seccomp: none, appArmor: local(runtimeapi.SecurityProfile_Localhost, "mine"), old: "localhost/mine"},
		"the container counts more than the annotation": {
			container:   corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "RuntimeDefault"}},
			annotations: map[string]string{prefix + "app": "localhost/mine"}, seccomp: none, appArmor: byRuntime, old: "runtime/default"},
		"another container's annotation":   {annotations: map[string]string{prefix + "other": "localhost/mine"}, seccomp: none},
		"an annotation that means nothing": {annotations: map[string]string{prefix + "app": "localhost/"}, seccomp: none},
		"AppArmor without its profile":     {container: corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Localhost"}}, wantErr: "names no profile"},
		"an unknown AppArmor type":         {container: corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "X"}}, wantErr: `unknown type "X"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := facts()
			f.SeccompDefault = tt.seccompDefault
			pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &tt.pod}}
			pod.Annotations = tt.annotations
			config, err := Container(pod, &corev1.Container{Name: "app", SecurityContext: &tt.container}, f)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := config.Linux.SecurityContext
			if diff := cmp.Diff(tt.seccomp, s.Seccomp, protocmp.Transform()); diff != "" {
				t.Errorf("seccomp (-want +got):\n%s", diff)
			}
			old := s.ApparmorProfile //nolint:staticcheck // older runtimes read the old field
			if diff := cmp.Diff(tt.appArmor, s.Apparmor, protocmp.Transform()); diff != "" || old != tt.old {
				t.Errorf("AppArmor %q (-want +got):\n%s", old, diff)
			}
		})
	}
}

func TestNamespacesAndPrivilege(t *testing.T) {
	const node, ofPod, own = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER
	tests := map[string]struct {
		spec       corev1.PodSpec
		net, pid   runtimeapi.NamespaceMode
		ipc        runtimeapi.NamespaceMode
		user       bool
		privileged bool
	}{
		"a pod's own":                     {spec: corev1.PodSpec{}, net: ofPod, pid: own, ipc: ofPod},
		"the host's network":              {spec: corev1.PodSpec{HostNetwork: true}, net: node, pid: own, ipc: ofPod},
		"shared processes":                {spec: corev1.PodSpec{ShareProcessNamespace: ptr.To(true)}, net: ofPod, pid: ofPod, ipc: ofPod},
		"the host's processes come first": {spec: corev1.PodSpec{HostPID: true, ShareProcessNamespace: ptr.To(true)}, net: ofPod, pid: node, ipc: ofPod},
		"the host's IPC":                  {spec: corev1.PodSpec{HostIPC: true}, net: ofPod, pid: own, ipc: node},
		"users of its own":                {spec: corev1.PodSpec{HostUsers: ptr.To(false)}, net: ofPod, pid: own, ipc: ofPod, user: true},
		"the host's users":                {spec: corev1.PodSpec{HostUsers: ptr.To(true)}, net: ofPod, pid: own, ipc: ofPod},
		"a privileged init container": {spec: corev1.PodSpec{InitContainers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}},
			net: ofPod, pid: own, ipc: ofPod, privileged: true},
		"a privileged ephemeral container": {spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}}}, net: ofPod, pid: own, ipc: ofPod, privileged: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := Sandbox(&corev1.Pod{Spec: tt.spec}, facts().Facts)
			if err != nil {
				t.Fatal(err)
			}
			s := config.Linux.SecurityContext
			n := s.NamespaceOptions
			if n.Network != tt.net || n.Pid != tt.pid || n.Ipc != tt.ipc || (n.UsernsOptions != nil) != tt.user || s.Privileged != tt.privileged {
				t.Errorf("%v, privileged %v", n, s.Privileged)
			}
		})
	}
	f := facts()
	f.TargetID = "abc"
	config, err := Container(&corev1.Pod{}, &corev1.Container{Name: "debug"}, f)
	if err != nil || config.Linux.SecurityContext.NamespaceOptions.TargetId != "abc" {
		t.Errorf("a target's processes: %v, %v", config, err)
	}
	f.UserNamespace = nil
	if _, err := Sandbox(&corev1.Pod{Spec: corev1.PodSpec{HostUsers: ptr.To(false)}}, f.Facts); err == nil || !strings.Contains(err.Error(), "hostUsers is false") {
		t.Errorf("no range for users: %v", err)
	}
}
