package shim_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

// pastShim answers as a shim of another version does: with the methods it has.
type pastShim struct {
	mu         sync.Mutex
	called     []string
	containers []*shimpb.Status
}

// servePast serves the methods of protocol 1 that the tests need, and says that it
// speaks the protocols from oldest to newest.
func servePast(t *testing.T, oldest, newest uint32, containers ...*shimpb.Status) (*pastShim, string) {
	t.Helper()
	p := &pastShim{containers: containers}
	run := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(run, shim.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	method := func(name string, answer func() proto.Message) ttrpc.Method {
		return func(_ context.Context, decode func(any) error) (any, error) {
			var r shimpb.ContainerRequest // those that are called here begin with an id
			if err := decode(&r); err != nil {
				return nil, err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.called = append(p.called, strings.TrimSpace(name+" "+r.Id))
			return answer(), nil
		}
	}
	srv.RegisterService("berth.shim.v1.Shim", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Hello": func(_ context.Context, decode func(any) error) (any, error) {
			var r shimpb.HelloRequest
			if err := decode(&r); err != nil {
				return nil, err
			}
			return &shimpb.HelloResponse{Protocol: newest, MinProtocol: oldest, Pid: 7, Version: "past"}, nil
		},
		"List":   method("List", func() proto.Message { return &shimpb.ListResponse{Containers: p.containers} }),
		"Delete": method("Delete", func() proto.Message { return &shimpb.Empty{} }),
	}})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.WithoutCancel(t.Context()), l) }()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return p, run
}

func (p *pastShim) calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.called)
}

// A newer berth works with the shim of an older one: it does without what that
// lacks, and says so where it can't.
func TestOlderShim(t *testing.T) {
	past, run := servePast(t, 1, 1,
		&shimpb.Status{Id: "created", State: shimpb.State_STATE_CREATED},
		&shimpb.Status{Id: "runs", State: shimpb.State_STATE_RUNNING, StartedAt: 5},
		&shimpb.Status{Id: "ran", State: shimpb.State_STATE_EXITED, StartedAt: 5, Exit: &shimpb.ExitStatus{}},
		&shimpb.Status{Id: "never", State: shimpb.State_STATE_EXITED, Exit: &shimpb.ExitStatus{}})
	c, err := shim.Dial(t.Context(), run, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	err = c.Upgrade(t.Context(), "/usr/bin/berth-shim")
	const want = "cannot upgrade the shim: the shim (version past, pid 7) speaks protocol 1, that needs 2: not supported by this version of the shim"
	if !errors.Is(err, shim.ErrUnsupported) || err.Error() != want {
		t.Errorf("upgrade: %v\nwant     %s", err, want)
	}
	for id, gone := range map[string]bool{"created": true, "never": true, "absent": true, "runs": false, "ran": false} {
		err := c.DeleteNotRun(t.Context(), id)
		if gone && err != nil || !gone && !errors.Is(err, shim.ErrState) {
			t.Errorf("delete %s if it was not run: %v", id, err)
		}
	}
	var deleted []string
	for _, call := range past.calls() {
		if id, ok := strings.CutPrefix(call, "Delete "); ok {
			deleted = append(deleted, id)
		}
	}
	slices.Sort(deleted)
	if want := []string{"absent", "created", "never"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q", deleted, want)
	}

	// A shim that claims a method and lacks it: its answer is told apart.
	_, run = servePast(t, 1, shim.Protocol)
	claims, err := shim.Dial(t.Context(), run, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer claims.Close()
	if err := claims.Upgrade(t.Context(), "/usr/bin/berth-shim"); !errors.Is(err, shim.ErrUnsupported) {
		t.Errorf("a method that is not there: %v", err)
	}
}

// Versions that do not overlap are refused at once, with what to do.
func TestStrangeProtocol(t *testing.T) {
	for name, c := range map[string]struct {
		oldest, newest uint32
		want           string // of the error; empty: none
	}{
		"the shim knows newer ones, too": {1, shim.Protocol + 5, ""},
		"the shim knows newer ones only": {shim.Protocol + 1, shim.Protocol + 5, "use the newer berth"},
		"the shim is too old":            {0, shim.MinProtocol - 1, "restart the shim"},
	} {
		t.Run(name, func(t *testing.T) {
			_, run := servePast(t, c.oldest, c.newest)
			client, err := shim.Dial(t.Context(), run, nil)
			if err == nil {
				client.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
