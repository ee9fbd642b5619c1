package cni

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/cri/network"
)

// What plugins may be told of a sandbox; each says in its configuration what it
// wants. The names are those of CNI's conventions and of other runtimes.
const (
	portMappings   = "portMappings"
	bandwidth      = "bandwidth"
	dns            = "dns"
	cgroupPath     = "cgroupPath"
	podAnnotations = "io.kubernetes.cri.pod-annotations"
)

// arguments are those that every plugin gets. Plugins for Kubernetes find the pod
// by them.
func arguments(r network.Request) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", r.Pod.Namespace},
		{"K8S_POD_NAME", r.Pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", r.ID},
		{"K8S_POD_UID", r.Pod.UID},
	}
}

// portMapping is a host port as plugins read it.
type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// rates are limits as plugins read them, in bits a second and in bits.
type rates struct {
	IngressRate  int64 `json:"ingressRate,omitempty"`
	IngressBurst int64 `json:"ingressBurst,omitempty"`
	EgressRate   int64 `json:"egressRate,omitempty"`
	EgressBurst  int64 `json:"egressBurst,omitempty"`
}

// nameServers are those of a pod as plugins read them.
type nameServers struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// capabilities are for the plugins that ask for them.
func capabilities(r network.Request) (map[string]any, error) {
	all := make(map[string]any)
	if len(r.Ports) > 0 {
		var ports []portMapping
		for _, p := range r.Ports {
			m := portMapping{HostPort: p.HostPort, ContainerPort: p.ContainerPort, Protocol: strings.ToLower(string(p.Proto))}
			if p.HostIP.IsValid() {
				m.HostIP = p.HostIP.String()
			}
			ports = append(ports, m)
		}
		all[portMappings] = ports
	}
	limits, err := limitsOf(r.Pod.Annotations)
	if err != nil {
		return nil, err
	}
	if limits != (rates{}) {
		all[bandwidth] = limits
	}
	if d := r.Pod.DNS; len(d.Servers)+len(d.Searches)+len(d.Options) > 0 {
		all[dns] = nameServers{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
	}
	if r.Pod.Cgroup != "" {
		all[cgroupPath] = r.Pod.Cgroup
	}
	if len(r.Pod.Annotations) > 0 {
		all[podAnnotations] = r.Pod.Annotations
	}
	return all, nil
}

// limitsOf reads the annotations by which a pod asks for limits.
func limitsOf(annotations map[string]string) (l rates, err error) {
	if l.IngressRate, err = rate(annotations, "kubernetes.io/ingress-bandwidth"); err != nil {
		return rates{}, err
	}
	if l.EgressRate, err = rate(annotations, "kubernetes.io/egress-bandwidth"); err != nil {
		return rates{}, err
	}
	// What a pod may send at once is not limited by these annotations: the most
	// that the kernel takes.
	if l.IngressRate > 0 {
		l.IngressBurst = math.MaxUint32
	}
	if l.EgressRate > 0 {
		l.EgressBurst = math.MaxUint32
	}
	return l, nil
}

// Limits of a rate, as Kubernetes has them: a limit outside is a mistake.
var (
	leastRate = resource.MustParse("1k")
	mostRate  = resource.MustParse("1P")
)

func rate(annotations map[string]string, key string) (bitsPerSecond int64, err error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("cannot use annotation %s: %q is not a number of bits a second: %w", key, text, err)
	}
	if q.Cmp(leastRate) < 0 || q.Cmp(mostRate) > 0 {
		return 0, fmt.Errorf("cannot use annotation %s: %s bits a second are not within %s–%s", key, text, &leastRate, &mostRate)
	}
	return q.Value(), nil
}
