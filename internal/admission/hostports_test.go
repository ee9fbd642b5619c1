package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// podWith is a pod whose containers have these ports.
func podWith(name string, ports ...corev1.ContainerPort) *corev1.Pod {
	for i := range ports {
		if ports[i].Protocol == "" {
			ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sleeps"}, {Name: "serves", Ports: ports}}},
	}
}

func TestHostPortsOfTwoPods(t *testing.T) {
	port := func(n int32) corev1.ContainerPort { return corev1.ContainerPort{HostPort: n, ContainerPort: 80} }
	on := func(ip string, n int32) corev1.ContainerPort {
		return corev1.ContainerPort{HostIP: ip, HostPort: n, ContainerPort: 80}
	}
	udp := corev1.ContainerPort{HostPort: 80, ContainerPort: 80, Protocol: corev1.ProtocolUDP}
	for name, c := range map[string]struct {
		has, wants corev1.ContainerPort
		taken      string // empty: both may run
	}{
		"the same port":                              {port(80), port(80), "80/TCP"},
		"another port":                               {port(80), port(81), ""},
		"no port of the host":                        {corev1.ContainerPort{ContainerPort: 80}, corev1.ContainerPort{ContainerPort: 80}, ""},
		"another protocol":                           {port(80), udp, ""},
		"one address of those that are all taken":    {port(80), on("127.0.0.1", 80), "127.0.0.1:80/TCP"},
		"all addresses of which one is taken":        {on("127.0.0.1", 80), port(80), "80/TCP"},
		"another address":                            {on("127.0.0.1", 80), on("127.0.0.2", 80), ""},
		"the same address":                           {on("127.0.0.1", 80), on("127.0.0.1", 80), "127.0.0.1:80/TCP"},
		"an address of all of IPv4":                  {on("0.0.0.0", 80), on("127.0.0.1", 80), "127.0.0.1:80/TCP"},
		"an address of IPv6, where IPv4's are taken": {on("0.0.0.0", 80), on("::1", 80), ""},
		"all of IPv6, of which one is taken":         {on("fd00::1", 80), on("::", 80), "[::]:80/TCP"},
	} {
		others := slices.Values([]*corev1.Pod{podWith("first"), podWith("second", c.has)})
		got := HostPorts(podWith("third", port(7), c.wants), others)
		want := fmt.Sprintf("host port %s is taken by pod default/second", c.taken)
		switch {
		case c.taken == "" && got != nil:
			t.Errorf("%s: rejected: %s", name, got.Message)
		case c.taken != "" && (got == nil || got.Reason != "NodePorts" || !strings.HasSuffix(got.Message, want)):
			t.Errorf("%s: got %+v, want %s", name, got, want)
		}
	}
}

// The ports of a sidecar count, those of an init container that ends do not.
func TestHostPortsOfInitContainers(t *testing.T) {
	pod := podWith("web")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Ports: []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}}}
	wants := podWith("other", corev1.ContainerPort{HostPort: 80})
	if got := HostPorts(wants, slices.Values([]*corev1.Pod{pod})); got != nil {
		t.Errorf("an init container keeps the port: %s", got.Message)
	}
	pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	if HostPorts(wants, slices.Values([]*corev1.Pod{pod})) == nil {
		t.Error("a sidecar's port is given away")
	}
}
