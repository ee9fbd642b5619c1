package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestPortTaken(t *testing.T) {
	n := open(t, testConfig(t))
	_, hostIP, _, _, _ := newOutside(t)
	setup(t, n, "owner", tcp(8040, 80))
	l, err := net.Listen("tcp", "0.0.0.0:8041")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", hostIP+":8042")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	self := fmt.Sprintf("process %d (", os.Getpid())
	one := func(ip string, m PortMapping) PortMapping { m.HostIP = netip.MustParseAddr(ip); return m }
	for name, c := range map[string]struct {
		port PortMapping
		want string // empty: no error
	}{
		"by another pod":                       {tcp(8040, 81), "host port 8040/tcp is taken by pod owner"},
		"by another pod, on one address":       {one("127.0.0.1", tcp(8040, 81)), "host port 127.0.0.1:8040/tcp is taken by pod owner"},
		"not for another protocol":             {udp(8040, 81), ""},
		"by a process":                         {tcp(8041, 80), "host port 8041/tcp is taken by " + self},
		"by a process on one address":          {udp(8042, 80), "host port 8042/udp is taken by " + self},
		"not on an address it does not listen": {one("127.0.0.1", udp(8042, 80)), ""},
		"nor is an address we do not have":     {one("192.0.2.77", tcp(8043, 80)), "192.0.2.77 is not an address of this machine"},
		"SCTP, which has no sockets here":      {PortMapping{HostPort: 8044, ContainerPort: 80, Proto: SCTP}, ""},
		"an IPv6 address for pods without":     {one("::1", tcp(8045, 80)), "pods have no IPv6 address here"},
		"no port":                              {tcp(0, 80), "0 is not a port"},
		"no protocol":                          {PortMapping{HostPort: 1, ContainerPort: 1, Proto: "tcp"}, `protocol "tcp" is not TCP, UDP or SCTP`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.Setup(t.Context(), Request{ID: name, NetNS: newSpace(t).path, Ports: []PortMapping{c.port}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if err := n.Teardown(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := n.Setup(t.Context(), Request{ID: "twice", NetNS: newSpace(t).path, Ports: []PortMapping{tcp(8046, 80), one("0.0.0.0", tcp(8046, 81))}}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("error %v, want one about the same port twice", err)
	}
	// Failed attempts must hold nothing back.
	n.Flush()
	if ls := n.List(); len(ls) != 1 || len(n.taken) != 1 {
		t.Errorf("leases %+v, %d addresses taken; want those of owner only", ls, len(n.taken))
	}
}
