package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/testutil/leak"
)

// inventory lists what the kernel has of our making.
func inventory(t testing.TB) (links, tables []string) {
	t.Helper()
	ls, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ls {
		if name := l.Attrs().Name; l.Type() == "veth" && strings.HasPrefix(name, linkPrefix) || l.Type() == "bridge" {
			links = append(links, name)
		}
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	ts, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range ts {
		tables = append(tables, table.Name)
	}
	return links, tables
}

func ports(t testing.TB, n *Network) int {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, cidr := range n.cidrs {
		for _, exact := range []bool{false, true} {
			es, err := c.GetSetElements(n.nft.hostPortMap(cidr.Addr().Is4(), exact))
			if err != nil {
				t.Fatal(err)
			}
			count += len(es)
		}
	}
	return count
}

// 200 pods come at once, go at once, and leave nothing.
func TestManyPodsLeaveNothing(t *testing.T) {
	const count = 200
	n := open(t, testConfig(t))
	spaces := make([]space, count)
	for i := range spaces {
		spaces[i] = newSpace(t)
	}
	each := func(f func(i int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	ips := make([]netip.Addr, count)
	request := func(i int) Request {
		return Request{ID: fmt.Sprint("pod", i), NetNS: spaces[i].path, Ports: []PortMapping{tcp(uint16(20000+i), 80), udp(uint16(20000+i), 53)}}
	}
	each(func(i int) error {
		res, err := n.Setup(t.Context(), request(i))
		if err == nil {
			ips[i] = res.IPs[0]
		}
		return err
	})
	if distinct := slices.Compact(slices.SortedFunc(slices.Values(ips), netip.Addr.Compare)); len(distinct) != count {
		t.Errorf("%d distinct addresses for %d pods", len(distinct), count)
	}
	if got := ports(t, n); got != 2*count {
		t.Errorf("%d host ports, want %d", got, 2*count)
	}
	spaces[7].serve(t, "seven", "tcp", ":80")
	host.mustAsk(t, "tcp", "127.0.0.1:20007", "seven")
	spaces[150].mustAsk(t, "tcp", ips[7].String()+":80", "seven")

	each(func(i int) error {
		if i%2 == 0 {
			spaces[i].remove() // its namespace may go first, and its link with it
		}
		return n.Teardown(t.Context(), fmt.Sprint("pod", i))
	})
	// Some come back before the old links are gone.
	each(func(i int) error {
		if i%20 != 1 {
			return nil
		}
		_, err := n.Setup(t.Context(), request(i))
		return errors.Join(err, n.Teardown(t.Context(), fmt.Sprint("pod", i)))
	})
	n.Flush()
	links, _ := inventory(t)
	files, err := os.ReadDir(n.leases.leaseDir())
	if got := ports(t, n); err != nil || got != 0 || len(links) != 1 || len(files) != 0 || len(n.List()) != 0 || len(n.taken) != 0 {
		t.Errorf("left: %d ports, links %v, %d files, %d leases, %d addresses, %v", got, links, len(files), len(n.List()), len(n.taken), err)
	}
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if links, tables := inventory(t); len(links)+len(tables) != 0 {
		t.Errorf("left after cleanup: links %v, tables %v", links, tables)
	}
	if _, err := os.Stat(n.cfg.StateDir); !os.IsNotExist(err) {
		t.Errorf("state folder is still there: %v", err)
	}
}

// How many descriptors are open does not depend on how many pods came and went at
// once, however many more than sockets are kept.
func TestNothingIsLeakedByManySetups(t *testing.T) {
	n := open(t, testConfig(t))
	const atOnce = 3 * hostHandles
	var spaces [atOnce]space
	for i := range spaces {
		spaces[i] = newSpace(t)
	}
	come := func(i int) error {
		id, port := fmt.Sprint("p", i), uint16(8090+i)
		_, err := n.Setup(t.Context(), Request{ID: id, NetNS: spaces[i].path, Ports: []PortMapping{tcp(port, 80), udp(port, 80)}})
		return errors.Join(err, n.Teardown(t.Context(), id))
	}
	if err := come(0); err != nil { // makes what all pods share
		t.Fatal(err)
	}
	n.Flush()
	scope := leak.Scope{Procs: []int{0}}
	before, goroutines := leak.Take(t, scope), runtime.NumGoroutine()
	for range 5 {
		var wg sync.WaitGroup
		for i := range spaces {
			wg.Go(func() {
				if err := come(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	n.Flush()
	before.NoMore(t, scope)
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}
