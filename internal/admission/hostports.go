// Package admission chooses whether a pod may run on this node, beside those that
// do. It is pure.
package admission

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/lifecycle"
)

// HostPorts rejects a pod that wants a port of the host which one of the others
// has, be it on the host's network or by a mapping, as the kubelet does (1.37, by
// the scheduler's NodePorts); nil: it may run. Others are asked for only if the pod
// wants a port.
func HostPorts(pod *corev1.Pod, others iter.Seq[*corev1.Pod]) *lifecycle.Reject {
	wants := hostPorts(pod)
	if len(wants) == 0 {
		return nil
	}
	for other := range others {
		for _, has := range hostPorts(other) {
			i := slices.IndexFunc(wants, has.meets)
			if i < 0 {
				continue
			}
			return &lifecycle.Reject{Reason: lifecycle.ReasonNodePorts, Message: fmt.Sprintf(
				"Pod was rejected: host port %s is taken by pod %s/%s", wants[i], other.Namespace, other.Name)}
		}
	}
	return nil
}

// hostPort is a port of the host that a pod wants.
type hostPort struct {
	protocol corev1.Protocol
	ip       string // empty: each address of the host
	port     int32
}

// String gives it as people write it: "127.0.0.1:80/TCP".
func (p hostPort) String() string {
	at := fmt.Sprint(p.port)
	if p.ip != "" {
		at = p.ip + ":" + at
		if ip, err := netip.ParseAddr(p.ip); err == nil {
			at = netip.AddrPortFrom(ip, uint16(p.port)).String()
		}
	}
	return at + "/" + string(p.protocol)
}

// meets says that one packet could be for both.
func (p hostPort) meets(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol && sameAddress(p.ip, o.ip)
}

func sameAddress(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	if errA != nil || errB != nil {
		return a == b // neither is in a valid pod
	}
	ipA, ipB = ipA.Unmap(), ipB.Unmap()
	return ipA.Is4() == ipB.Is4() && (ipA == ipB || ipA.IsUnspecified() || ipB.IsUnspecified())
}

// hostPorts are those of the containers that may run as long as the pod does.
func hostPorts(pod *corev1.Pod) (ports []hostPort) {
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, hostPort{protocol: p.Protocol, ip: p.HostIP, port: p.HostPort})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}
