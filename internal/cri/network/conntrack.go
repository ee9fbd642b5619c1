package network

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// udpFlows matches what the kernel remembers of UDP packets to host ports.
type udpFlows []target

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (ts udpFlows) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	for _, t := range ts {
		if c.Forward.Protocol == t.Proto && c.Forward.DstPort == t.Host && (!t.HostIP.IsValid() || c.Forward.DstIP.Equal(t.HostIP.AsSlice())) {
			return true
		}
	}
	return false
}

// forgetFlows makes the kernel decide anew where packets to these host ports go.
// Only UDP needs it: a client may go on sending from one port for ever, and its
// packets would be led where the first one was.
func forgetFlows(ts []target) error {
	var v4, v6 udpFlows
	for _, t := range ts {
		switch {
		case t.Proto != UDP.number():
		case t.Addr.Is4():
			v4 = append(v4, t)
		default:
			v6 = append(v6, t)
		}
	}
	for _, f := range []struct {
		family netlink.InetFamily
		flows  udpFlows
	}{{unix.AF_INET, v4}, {unix.AF_INET6, v6}} {
		if len(f.flows) == 0 {
			continue
		}
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f.family, f.flows); err != nil {
			return fmt.Errorf("cannot delete entries of the connection table: %w", err)
		}
	}
	return nil
}
