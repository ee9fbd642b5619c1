package podconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Name servers that listen on the machine's loopback only, as systemd-resolved
// does on Ubuntu, can't be reached from a pod with a network of its own. It gets
// the servers behind them, if those are known.
func TestPodsGetNameServersThatTheyCanReach(t *testing.T) {
	const stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch home.example\n"
	const real = "nameserver 192.0.2.53\nsearch home.example\n"
	tests := map[string]struct {
		host, upstream string
		hostNetwork    bool
		add            []string
		want           string
		cut            string
	}{
		"the servers behind":                {stub, real, false, nil, "search home.example\nnameserver 192.0.2.53\n", ""},
		"the machine's own, on its network": {stub, real, true, nil, "search home.example\nnameserver 127.0.0.53\noptions edns0 trust-ad\n", ""},
		"reachable ones stay":               {"nameserver 192.0.2.1\nnameserver ::1\n", real, false, nil, "nameserver 192.0.2.1\n", ""},
		"nobody knows what is behind":       {stub, "", false, nil, "search home.example\noptions edns0 trust-ad\n", "127.0.0.53"},
		"the pod knows better":              {stub, "", false, []string{"192.0.2.9"}, "search home.example\nnameserver 192.0.2.9\noptions edns0 trust-ad\n", ""},
		"loopback behind loopback":          {stub, stub, false, nil, "search home.example\noptions edns0 trust-ad\n", "127.0.0.53"},
		"a server on one link":              {"nameserver fe80::1%eth0\nnameserver 192.0.2.1\n", "", false, nil, "nameserver 192.0.2.1\n", ""},
		"what the pod asks for stays":       {"nameserver 192.0.2.1\n", "", false, []string{"127.0.0.1"}, "nameserver 192.0.2.1\nnameserver 127.0.0.1\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: tt.hostNetwork, DNSPolicy: corev1.DNSClusterFirst}}
			if tt.add != nil {
				pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: tt.add}
			}
			dns, cut := DNS(pod, Facts{HostDNS: ParseResolvConf([]byte(tt.host)), UpstreamDNS: ParseResolvConf([]byte(tt.upstream))})
			if diff := cmp.Diff(tt.want, string(ResolvConf(dns))); diff != "" {
				t.Errorf("resolv.conf (-want +got):\n%s", diff)
			}
			if got := strings.Join(cut, "\n"); (got == "") != (tt.cut == "") || !strings.Contains(got, tt.cut) {
				t.Errorf("left out %q, want %q", got, tt.cut)
			}
		})
	}
	// Without the machine's servers, nothing of them is said.
	pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.9"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}}}}}
	if _, cut := DNS(pod, Facts{HostDNS: ParseResolvConf([]byte(stub))}); len(cut) > 0 {
		t.Errorf("left out %q", cut)
	}
}
