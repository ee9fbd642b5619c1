package cri

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podInterface is the name of a pod's network interface.
const podInterface = "eth0"

// netInterface is a network interface and its counters.
type netInterface struct {
	name   string
	rx, tx netCounters
}

type netCounters struct{ bytes, packets, errors, dropped uint64 }

// networkUsage reads the counters of the sandbox's interfaces; nil if it has the
// host's, whose traffic is not its own.
func (s *Service) networkUsage(sb *sandbox) (*runtimeapi.NetworkUsage, error) {
	interfaces, err := s.interfaces(sb)
	if err != nil || sb.hostNetwork() {
		return nil, err
	}
	u := &runtimeapi.NetworkUsage{Timestamp: nowNanos()}
	for _, i := range interfaces {
		usage := &runtimeapi.NetworkInterfaceUsage{
			Name:    i.name,
			RxBytes: uint64Value(i.rx.bytes), RxErrors: uint64Value(i.rx.errors),
			TxBytes: uint64Value(i.tx.bytes), TxErrors: uint64Value(i.tx.errors),
		}
		if i.name == podInterface {
			u.DefaultInterface = usage
			continue
		}
		u.Interfaces = append(u.Interfaces, usage)
	}
	// A network plugin may have given the interface another name.
	if u.DefaultInterface == nil && len(u.Interfaces) > 0 {
		u.DefaultInterface, u.Interfaces = u.Interfaces[0], u.Interfaces[1:]
	}
	return u, nil
}

// interfaces reads the counters of the sandbox's own interfaces but the loopback.
func (s *Service) interfaces(sb *sandbox) ([]netInterface, error) {
	if sb.hostNetwork() {
		return nil, nil
	}
	var raw []byte
	err := inNamespaces(s.namespaceDir(sb.id), []nsKind{nsNet}, func() (err error) {
		raw, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the network use of sandbox %s: %w", sb.id, err)
	}
	return parseNetDev(string(raw)), nil
}

// parseNetDev reads /proc/net/dev without the loopback. Lines it doesn't
// understand are left out.
func parseNetDev(text string) (out []netInterface) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, counters, ok := strings.Cut(lines.Text(), ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(counters)
		if !ok || name == "lo" || len(fields) < 12 {
			continue
		}
		number := func(i int) uint64 {
			n, _ := strconv.ParseUint(fields[i], 10, 64)
			return n
		}
		from := func(i int) netCounters {
			return netCounters{bytes: number(i), packets: number(i + 1), errors: number(i + 2), dropped: number(i + 3)}
		}
		out = append(out, netInterface{name: name, rx: from(0), tx: from(8)})
	}
	return out
}
