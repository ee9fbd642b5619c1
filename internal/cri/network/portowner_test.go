package network

import (
	"strings"
	"testing"
)

// Who has a port is told by the pod's name, also after a restart.
func TestPortIsTakenByAPodWithAName(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	owner := newSpace(t)
	if _, err := n.Setup(t.Context(), Request{ID: "0123", Name: "default/web", NetNS: owner.path, Ports: []PortMapping{tcp(8060, 80)}}); err != nil {
		t.Fatal(err)
	}
	other := newSpace(t)
	for range 2 {
		_, err := n.Setup(t.Context(), Request{ID: "4567", NetNS: other.path, Ports: []PortMapping{tcp(8060, 81)}})
		if err == nil || !strings.Contains(err.Error(), "host port 8060/tcp is taken by pod default/web") {
			t.Errorf("error %v", err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = open(t, cfg)
	}
}
