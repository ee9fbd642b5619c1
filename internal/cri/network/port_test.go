package network

import (
	"net/netip"
	"strings"
	"testing"
)

// A host port that could never be reached is refused, not opened in silence.
func TestHostPortThatCanNotWorkIsRefused(t *testing.T) {
	one := func(ip string) PortMapping {
		return PortMapping{HostIP: netip.MustParseAddr(ip), HostPort: 8080, ContainerPort: 80, Proto: TCP}
	}
	for _, c := range []struct {
		ports []PortMapping
		dual  bool
		says  string
	}{
		{[]PortMapping{one("127.0.0.1"), one("::")}, true, ""},
		{[]PortMapping{one("::1")}, true, "use 127.0.0.1"},
		{[]PortMapping{one("::")}, false, "no IPv6 address"},
		{[]PortMapping{one("::ffff:192.0.2.1")}, true, "plain IPv4"},
		{[]PortMapping{one("0.0.0.0"), one("127.0.0.1")}, true, "twice"},
		{[]PortMapping{{HostPort: 1, ContainerPort: 1, Proto: "ICMP"}}, true, "ICMP"},
		{[]PortMapping{{HostPort: 1, Proto: TCP}}, true, "0 is not a port"},
	} {
		err := validatePorts(c.ports, c.dual)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: error %v, want %q", c.ports, err, c.says)
		}
	}
}
