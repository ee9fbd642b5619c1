package podconfig

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/lifecycle"
)

func TestHostNames(t *testing.T) {
	long := strings.Repeat("a", 62)
	tests := map[string]struct {
		name       string
		spec       corev1.PodSpec
		host       string
		domain     string
		kernel     string
		wantErr    string
		standalone bool
	}{
		"the pod's name by default":          {name: "web", host: "web", kernel: "web"},
		"hostname":                           {name: "web", spec: corev1.PodSpec{Hostname: "h"}, host: "h", kernel: "h"},
		"subdomain":                          {name: "web", spec: corev1.PodSpec{Subdomain: "s"}, host: "web", domain: "s.ns.svc.cluster.local", kernel: "web"},
		"subdomain without a cluster":        {name: "web", spec: corev1.PodSpec{Subdomain: "s"}, host: "web", domain: "s.ns.svc", kernel: "web", standalone: true},
		"the whole name for the kernel":      {name: "web", spec: corev1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: ptr.To(true)}, host: "web", domain: "s.ns.svc.cluster.local", kernel: "web.s.ns.svc.cluster.local"},
		"no domain, no whole name":           {name: "web", spec: corev1.PodSpec{SetHostnameAsFQDN: ptr.To(true)}, host: "web", kernel: "web"},
		"an override counts alone":           {name: "web", spec: corev1.PodSpec{HostnameOverride: ptr.To("o.example"), Hostname: "h", Subdomain: "s"}, host: "o.example", kernel: "o.example"},
		"a long name is cut":                 {name: long + "bcd", host: long + "b", kernel: long + "b"},
		"no cut name ends with a dash":       {name: long + "-d", host: long, kernel: long},
		"a whole name that is too long":      {name: "web", spec: corev1.PodSpec{Subdomain: strings.Repeat("s", 50), SetHostnameAsFQDN: ptr.To(true)}, wantErr: "setHostnameAsFQDN allows 64"},
		"a hostname that is no label":        {name: "web", spec: corev1.PodSpec{Hostname: "a.b"}, wantErr: `spec.hostname "a.b"`},
		"an override that is no name":        {name: "web", spec: corev1.PodSpec{HostnameOverride: ptr.To("A_")}, wantErr: "spec.hostnameOverride"},
		"a subdomain that is no label":       {name: "web", spec: corev1.PodSpec{Subdomain: "a.b"}, wantErr: `spec.subdomain "a.b"`},
		"a pod's name may hold dots":         {name: "a.b", host: "a.b", kernel: "a.b"},
		"a whole name of 64 characters fits": {name: "web", spec: corev1.PodSpec{Subdomain: strings.Repeat("s", 64-4-len(".ns.svc.cluster.local")), SetHostnameAsFQDN: ptr.To(true)}, host: "web", domain: strings.Repeat("s", 39) + ".ns.svc.cluster.local", kernel: "web." + strings.Repeat("s", 39) + ".ns.svc.cluster.local"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: tt.spec}
			pod.Name, pod.Namespace, pod.UID = tt.name, "ns", "1"
			f := facts().Facts
			if !tt.standalone {
				f.ClusterDomain = "cluster.local"
			}
			config, err := Sandbox(pod, f)
			if tt.wantErr != "" {
				var failed *lifecycle.Failed
				if !errors.As(err, &failed) || failed.Reason != lifecycle.ReasonFailedCreatePodSandBox || !strings.Contains(failed.Message, tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			host, domain, err := Hostname(pod, f.ClusterDomain)
			if host != tt.host || domain != tt.domain || err != nil || config.Hostname != tt.kernel {
				t.Errorf("%q in %q, kernel %q, %v; want %q in %q, kernel %q", host, domain, config.Hostname, err, tt.host, tt.domain, tt.kernel)
			}
		})
	}
}

func TestDNSPolicies(t *testing.T) {
	cluster := func(f *Facts) { f.ClusterDNS, f.ClusterDomain = []string{"10.96.0.10"}, "cluster.local" }
	extra := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.53", "192.0.2.1"},
		Searches:    []string{"example.org", "more.example"},
		Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("1")}, {Name: "edns0"}, {Name: "rotate"}},
	}
	const host = "search example.org\nnameserver 192.0.2.1\noptions edns0\n"
	const inCluster = "search ns.svc.cluster.local svc.cluster.local cluster.local example.org\nnameserver 10.96.0.10\noptions ndots:5\n"
	tests := map[string]struct {
		spec  corev1.PodSpec
		facts func(*Facts)
		want  string
	}{
		"ClusterFirst without a cluster is the host's":      {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, nil, host},
		"no policy is ClusterFirst":                         {corev1.PodSpec{}, cluster, inCluster},
		"ClusterFirst in a cluster":                         {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, cluster, inCluster},
		"ClusterFirst on the host network is the host's":    {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, cluster, host},
		"ClusterFirstWithHostNet on the host network":       {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, cluster, inCluster},
		"Default is the host's":                             {corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, cluster, host},
		"None is nothing":                                   {corev1.PodSpec{DNSPolicy: corev1.DNSNone}, cluster, ""},
		"None with a config is the config":                  {corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: extra}, cluster, "search example.org more.example\nnameserver 192.0.2.53\nnameserver 192.0.2.1\noptions ndots:1 edns0 rotate\n"},
		"a config adds, and its options replace":            {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, DNSConfig: extra}, cluster, "search ns.svc.cluster.local svc.cluster.local cluster.local example.org more.example\nnameserver 10.96.0.10\nnameserver 192.0.2.53\nnameserver 192.0.2.1\noptions ndots:1 edns0 rotate\n"},
		"a host without a resolver configuration is no bug": {corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, func(f *Facts) { f.HostDNS = nil }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := facts().Facts
			if tt.facts != nil {
				tt.facts(&f)
			}
			before := ResolvConf(f.HostDNS)
			pod := &corev1.Pod{Spec: tt.spec}
			pod.Namespace = "ns"
			dns, warnings := DNS(pod, f)
			if diff := cmp.Diff(tt.want, string(ResolvConf(dns))); diff != "" || len(warnings) > 0 {
				t.Errorf("warnings %q (-want +got):\n%s", warnings, diff)
			}
			if string(ResolvConf(f.HostDNS)) != string(before) {
				t.Error("the host's configuration was changed")
			}
		})
	}
}

func TestDNSIsCutToWhatResolversTake(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"},
	}}}
	searches := &pod.Spec.DNSConfig.Searches
	*searches = append(*searches, strings.Repeat("x", 254))
	for i := range 40 {
		*searches = append(*searches, fmt.Sprintf("d%02d.example", i))
	}
	dns, warnings := DNS(pod, facts().Facts)
	if len(dns.Servers) != 3 || len(dns.Searches) != 32 || dns.Searches[0] != "d00.example" {
		t.Errorf("%d servers, %d searches from %q", len(dns.Servers), len(dns.Searches), dns.Searches[0])
	}
	all := strings.Join(warnings, "\n")
	if len(warnings) != 2 || !strings.Contains(all, "192.0.2.4") || !strings.Contains(all, "d39.example") {
		t.Errorf("warnings %q", warnings)
	}

	*searches = nil
	for i := range 20 {
		*searches = append(*searches, strings.Repeat("x", 150)+fmt.Sprint(i))
	}
	dns, _ = DNS(pod, facts().Facts)
	if line := strings.Join(dns.Searches, " "); len(line) > 2048 || len(dns.Searches) != 13 {
		t.Errorf("%d searches of %d characters in all", len(dns.Searches), len(line))
	}
}

func TestResolvConfIsRead(t *testing.T) {
	got := ParseResolvConf([]byte("# a comment\nnameserver 192.0.2.1 # first\n  nameserver\t192.0.2.2\nnameserver\nsearch old.example\n" +
		"search a.example. . b.example\noptions ndots:1 rotate\noptions ndots:3\nsortlist 192.0.2.0\n;options no"))
	want := &runtimeapi.DNSConfig{
		Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:3", "rotate"},
	}
	if string(ResolvConf(got)) != string(ResolvConf(want)) {
		t.Errorf("got\n%s\nwant\n%s", ResolvConf(got), ResolvConf(want))
	}
}

func TestNonRootIsHeldTo(t *testing.T) {
	tests := map[string]struct {
		pod, container *int64 // runAsUser
		image          ImageUser
		wantErr        string
		wantUID        *int64
		wantName       string
	}{
		"the image's root is refused":           {image: ImageUser{UID: ptr.To[int64](0)}, wantErr: "image will run as root"},
		"an image without a user is root":       {wantErr: "image will run as root"},
		"the image's other user is taken":       {image: ImageUser{UID: ptr.To[int64](7)}, wantUID: ptr.To[int64](7)},
		"a name can't be checked":               {image: ImageUser{Name: "www"}, wantErr: "non-numeric user (www)"},
		"a number that is none":                 {image: ImageUser{UID: ptr.To[int64](1 << 40)}, wantErr: "invalid user id"},
		"the pod's user counts over the image":  {pod: ptr.To[int64](8), image: ImageUser{Name: "www"}, wantUID: ptr.To[int64](8)},
		"the container's counts over the pod's": {pod: ptr.To[int64](8), container: ptr.To[int64](0), wantErr: "runAsUser breaks non-root policy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := facts()
			f.ImageUser = tt.image
			pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsUser: tt.pod, RunAsNonRoot: ptr.To(true)}}}
			c := &corev1.Container{Name: "app", SecurityContext: &corev1.SecurityContext{RunAsUser: tt.container}}
			config, err := Container(pod, c, f)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				pod.Spec.SecurityContext.RunAsNonRoot = nil
				if _, err := Container(pod, c, f); err != nil {
					t.Errorf("without runAsNonRoot: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := config.Linux.SecurityContext
			if s.RunAsUser.GetValue() != *tt.wantUID || s.RunAsUsername != tt.wantName {
				t.Errorf("user %v %q", s.RunAsUser, s.RunAsUsername)
			}
		})
	}
}
