package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// inside runs a pod to its end and gives what its container app printed.
func inside(t *testing.T, name, container string, spec ...string) string {
	t.Helper()
	p := sharedNode(t).run(t, onePod(name, container, append(spec, "restartPolicy: Never")...))
	p.succeeded(t)
	out := p.logs(t, "app")
	p.stop(t)
	return out
}

// Each field of securityContext is seen from inside.
func TestSecurityContextIsSeenFromInside(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	for name, c := range map[string]struct {
		container, spec string
		want, not       []string
	}{
		"sec-default": {container: "args: [caps]", want: []string{"Uid: 0 0", "CapEff: 00000000a80425fb", "NoNewPrivs: 0", "Seccomp: 2"}},
		"sec-user": {container: "args: [caps]\nsecurityContext: {runAsUser: 1001, runAsGroup: 1002}", spec: "securityContext: {runAsUser: 7, runAsGroup: 8, supplementalGroups: [50, 60]}",
			want: []string{"Uid: 1001 1001", "Gid: 1002 1002", "50", "60", "CapEff: 0000000000000000"}},
		"sec-pod-user":     {container: "args: [caps]", spec: "securityContext: {runAsUser: 7, runAsGroup: 8}", want: []string{"Uid: 7 7", "Gid: 8 8"}},
		"sec-drop":         {container: "args: [caps]\nsecurityContext: {capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}", want: []string{"CapEff: 0000000000000400", "CapBnd: 0000000000000400"}},
		"sec-no-gain":      {container: "args: [caps]\nsecurityContext: {allowPrivilegeEscalation: false}", want: []string{"NoNewPrivs: 1"}},
		"sec-unconfined":   {container: "args: [caps]\nsecurityContext: {seccompProfile: {type: Unconfined}}", want: []string{"Seccomp: 0"}},
		"sec-privileged":   {container: "args: [caps]\nsecurityContext: {privileged: true}", want: []string{"Seccomp: 0"}, not: []string{"CapEff: 00000000a80425fb"}},
		"sec-masked":       {container: "args: [mounts]", want: []string{"/proc/keys", "/proc/sys", "/sys/firmware"}},
		"sec-unmasked":     {container: "args: [mounts]\nsecurityContext: {procMount: Unmasked}", spec: "hostUsers: false", not: []string{"/proc/keys"}},
		"sec-sysctl":       {container: "args: [cat, /proc/sys/net/ipv4/ip_unprivileged_port_start]", spec: "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"80\"}]}", want: []string{"80\n"}},
		"sec-users":        {container: "args: [cat, /proc/self/uid_map]", spec: "hostUsers: false", want: []string{"65536"}, not: []string{"4294967295"}},
		"sec-host-users":   {container: "args: [cat, /proc/self/uid_map]", want: []string{"4294967295"}},
		"sec-named-host":   {container: "args: [hostname]", spec: "hostname: box\nsubdomain: things", want: []string{"box\n"}},
		"sec-fqdn":         {container: "args: [hostname]", spec: "hostname: box\nsubdomain: things\nsetHostnameAsFQDN: true", want: []string{"box.things.default.svc\n"}},
		"sec-oom-score":    {container: "args: [cat, /proc/self/oom_score_adj]", want: []string{"1000\n"}},
		"sec-host-network": {container: "args: [cat, /proc/net/dev]", spec: "hostNetwork: true", want: []string{"nowhere"}},
		"sec-own-network":  {container: "args: [cat, /proc/net/dev]", want: []string{"eth0"}, not: []string{"nowhere"}},
		"sec-workdir":      {container: "args: [ls]\nworkingDir: /etc", want: []string{"passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spec []string
			if c.spec != "" {
				spec = append(spec, c.spec)
			}
			out := inside(t, name, c.container, spec...)
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in %q", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out, not) {
					t.Errorf("%q is in %q", not, out)
				}
			}
		})
	}
}

func TestContainerMayNotRunAsRoot(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("non-root", "args: [serve]", "securityContext: {runAsNonRoot: true}"))
	if message := p.reason(t, "app", "CreateContainerConfigError"); !strings.Contains(message, "root") {
		t.Errorf("the message is %q", message)
	}
	p.stop(t)
}

func TestRootFileSystemIsReadOnly(t *testing.T) {
	t.Parallel()
	p := sharedNode(t).run(t, onePod("read-only", "args: [write, /x, text]\nsecurityContext: {readOnlyRootFilesystem: true}", "restartPolicy: Never"))
	p.failed(t)
	p.says(t, "app", "read-only file system")
	p.stop(t)
}

func TestNamesAreResolvedAsTheSpecSays(t *testing.T) {
	t.Parallel()
	out := inside(t, "dns", "args: [cat, /etc/resolv.conf, /etc/hosts]", `
hostname: box
subdomain: things
dnsPolicy: None
dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
hostAliases: [{ip: 192.0.2.7, hostnames: [seven, sept]}]`)
	for _, want := range []string{"nameserver 192.0.2.53\n", "search example.org\n", "options ndots:3\n", "192.0.2.7\tseven\tsept\n", "\tbox.things.default.svc\tbox\n", "127.0.0.1\tlocalhost"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
}

func TestVariablesAreExpanded(t *testing.T) {
	t.Parallel()
	out := inside(t, "variables", `
args: [echo, $(B), $(NOT_SET), $$(A)]
env:
- {name: A, value: one}
- {name: B, value: "$(A)-two"}`)
	if out != "one-two $(NOT_SET) $(A)\n" {
		t.Errorf("got %q", out)
	}
}

func TestVolumesHaveTheModesAndGroupsAskedFor(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: modes}\ndata: {a: one, b: two}\n")
	out := inside(t, "modes", `
args: [stat, /cm/..data/a, /cm/..data/b, /empty, /sub]
volumeMounts:
- {name: cm, mountPath: /cm}
- {name: empty, mountPath: /empty}
- {name: empty, mountPath: /sub, subPathExpr: "dir-$(NAME)"}
env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`, `
securityContext: {fsGroup: 3000, runAsUser: 1000}
volumes:
- {name: empty, emptyDir: {}}
- {name: cm, configMap: {name: modes, defaultMode: 0440, items: [{key: a, path: a, mode: 0400}, {key: b, path: b}]}}`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %q", out)
	}
	for i, want := range []string{"0440", "0440", "2777", ""} { // the group may read what its owner may
		if !strings.Contains(lines[i], want) || i < 3 && !strings.Contains(lines[i], "3000") {
			t.Errorf("%q, want mode %s and group 3000", lines[i], want)
		}
	}
}

func TestSubPathShowsOneFile(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\ndata: {a: one, b: two}\n")
	out := inside(t, "sub-path", "args: [cat, /etc/only]\nvolumeMounts: [{name: cm, mountPath: /etc/only, subPath: b}]", "volumes: [{name: cm, configMap: {name: sub}}]")
	if out != "two\n" && out != "two" {
		t.Errorf("got %q", out)
	}
}

func TestConfigMapVolumeFollowsChanges(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: follows}\ndata: {a: before}\n")
	p := n.run(t, onePod("follows", "args: [serve]\nvolumeMounts: [{name: cm, mountPath: /cm}]", "volumes: [{name: cm, configMap: {name: follows}}]"))
	p.prints(t, "app", "before", "cat", "/cm/a")
	n.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: follows}\ndata: {a: after}\n")
	p.prints(t, "app", "after", "cat", "/cm/a")
	p.stop(t)
}

func TestMountsReachTheContainerOnlyIfAskedTo(t *testing.T) {
	n := newNode(t)
	host := t.TempDir()
	mountTmpfs(t, host)
	shareMount(t, host)
	early := filepath.Join(host, "early")
	if err := os.Mkdir(early, 0o700); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, early)
	p := n.run(t, onePod("propagation", `
args: [serve]
volumeMounts:
- {name: h, mountPath: /none}
- {name: h, mountPath: /slave, mountPropagation: HostToContainer}
- {name: h, mountPath: /locked, readOnly: true, recursiveReadOnly: Enabled}`, "volumes: [{name: h, hostPath: {path: "+host+"}}]"))
	p.ready(t)
	late := filepath.Join(host, "late")
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, late)
	if err := os.WriteFile(filepath.Join(late, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := p.exec(t, "app", "test", "-e", "/none/late/file"); code != 1 {
		t.Error("a later mount is seen without propagation")
	}
	if code, _ := p.exec(t, "app", "test", "-e", "/slave/late/file"); code != 0 {
		t.Error("a later mount is not seen with HostToContainer")
	}
	for _, file := range []string{"/locked/x", "/locked/early/x"} {
		if code, out := p.exec(t, "app", "write", file, "text"); code == 0 || !strings.Contains(out, "read-only") {
			t.Errorf("%s is on a read-only mount and is written to: %q", file, out)
		}
	}
	if code, out := p.exec(t, "app", "write", "/none/early/x", "text"); code != 0 {
		t.Errorf("a mount that may be written to is not: %q", out)
	}
	p.stop(t)
}

// A pod with users of its own owns its volumes, and nothing of the machine.
func TestUserNamespaceOwnsItsVolumesOnly(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	p := n.run(t, onePod("user-volumes", `
args: [serve]
volumeMounts: [{name: e, mountPath: /e}, {name: m, mountPath: /m}]`, `
hostUsers: false
volumes: [{name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]`))
	for _, dir := range []string{"/e", "/m", "/"} {
		if code, out := p.exec(t, "app", "write", filepath.Join(dir, "mine"), "text"); code != 0 {
			t.Errorf("root in the pod cannot write to %s: %s", dir, out)
		}
	}
	p.prints(t, "app", "text", "cat", "/e/mine")
	if code, _ := p.exec(t, "app", "write", "/proc/sys/kernel/hostname", "text"); code == 0 {
		t.Error("root in the pod can set what is the machine's")
	}
	// Seen from the machine, its processes are those of a user who is nobody.
	pid := containerPID(t, p, "app")
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil || st.Uid < 1<<16 {
		t.Errorf("the process runs as user %d of the machine, %v", st.Uid, err)
	}
	p.stop(t)
}
