package shim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/berth-run/berth/internal/shim"
	"github.com/berth-run/berth/internal/shim/shimpb"
)

const service = "berth.shim.v1.Shim"

// protocol1 is the service as berth and shim of version 1 know it.
func protocol1(t *testing.T) protoreflect.ServiceDescriptor {
	t.Helper()
	b, err := os.ReadFile("testdata/protocol1.textproto")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName(service)
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.ServiceDescriptor)
}

// Nothing of version 1 is gone or means something else now.
func TestProtocolOnlyGrows(t *testing.T) {
	now := shimpb.File_shim_proto.Services().Get(0)
	methods := protocol1(t).Methods()
	checked := make(map[[2]protoreflect.FullName]bool)
	var same func(path string, was, is protoreflect.MessageDescriptor)
	same = func(path string, was, is protoreflect.MessageDescriptor) {
		key := [2]protoreflect.FullName{was.FullName(), is.FullName()}
		if checked[key] {
			return
		}
		checked[key] = true
		for i := range was.Fields().Len() {
			f := was.Fields().Get(i)
			g := is.Fields().ByNumber(f.Number())
			if g == nil || g.Name() != f.Name() || g.Kind() != f.Kind() || g.Cardinality() != f.Cardinality() {
				t.Errorf("%s: %v was %v %v, and is %v", path, f.Number(), f.Kind(), f.Name(), g)
				continue
			}
			if f.Message() != nil {
				same(path+"."+string(f.Name()), f.Message(), g.Message())
			}
			if f.Enum() != nil {
				for j := range f.Enum().Values().Len() {
					v := f.Enum().Values().Get(j)
					if w := g.Enum().Values().ByNumber(v.Number()); w == nil || w.Name() != v.Name() {
						t.Errorf("%s: %v was %v, and is %v", path, v.Number(), v.Name(), w)
					}
				}
			}
		}
	}
	for i := range methods.Len() {
		m := methods.Get(i)
		n := now.Methods().ByName(m.Name())
		if n == nil || n.IsStreamingServer() != m.IsStreamingServer() || n.IsStreamingClient() != m.IsStreamingClient() {
			t.Errorf("method %s is gone or another one", m.Name())
			continue
		}
		same(string(m.Name())+" request", m.Input(), n.Input())
		same(string(m.Name())+" response", m.Output(), n.Output())
	}
	if len(checked) < 30 {
		t.Errorf("%d messages compared", len(checked))
	}
}

// oldBerth calls a shim as a berth of version 1 does.
type oldBerth struct {
	t       *testing.T
	conn    *ttrpc.Client
	service protoreflect.ServiceDescriptor
}

func (n *node) oldBerth(t *testing.T) *oldBerth {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(n.run, shim.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	o := &oldBerth{t: t, conn: ttrpc.NewClient(c), service: protocol1(t)}
	t.Cleanup(func() { o.conn.Close() })
	return o
}

// call makes a call with a request in JSON, and returns the answer as such.
func (o *oldBerth) call(ctx context.Context, method, request string) (map[string]any, error) {
	m := o.service.Methods().ByName(protoreflect.Name(method))
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		return nil, err
	}
	if err := o.conn.Call(ctx, service, method, in, out); err != nil {
		return nil, err
	}
	b, err := protojson.Marshal(out)
	if err != nil {
		return nil, err
	}
	var answer map[string]any
	return answer, json.Unmarshal(b, &answer)
}

func (o *oldBerth) must(ctx context.Context, method, request string) map[string]any {
	o.t.Helper()
	answer, err := o.call(ctx, method, request)
	if err != nil {
		o.t.Fatalf("%s: %v", method, err)
	}
	return answer
}

// A berth of version 1 works with this shim. Its execs can't outlast an upgrade, so
// they put it off.
func TestOlderBerth(t *testing.T) {
	n := newNode(t)
	o := n.oldBerth(t)
	hello := o.must(n.ctx, "Hello", `{"protocol": 1}`)
	if got := hello["minProtocol"]; got != 1.0 {
		t.Errorf("the shim understands %v at the oldest", got)
	}
	r := n.bundle("a", nil, "trap")
	mount, err := json.Marshal(map[string]any{"type": r.Rootfs[0].Type, "source": r.Rootfs[0].Source, "options": r.Rootfs[0].Options})
	if err != nil {
		t.Fatal(err)
	}
	o.must(n.ctx, "Create", fmt.Sprintf(`{"id": "a", "bundle": %q, "rootfs": [%s], "logPath": %q}`, r.Bundle, mount, r.LogPath))
	o.must(n.ctx, "Start", `{"id": "a"}`)
	n.logHas(r.LogPath, "ready")
	exec := func(args ...string) (map[string]any, error) {
		p, err := json.Marshal(process(args...))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(map[string]any{"id": "a", "token": "77", "process": p})
		if err != nil {
			t.Fatal(err)
		}
		return o.call(n.ctx, "Exec", string(b))
	}
	answer, err := exec("exit", "5")
	if exit, _ := answer["exit"].(map[string]any); err != nil || exit["code"] != 5.0 || exit["known"] != true {
		t.Errorf("exec: %v, %v", answer, err)
	}

	ended := make(chan map[string]any, 1)
	go func() {
		answer, err := exec("sleep")
		if err != nil {
			t.Error(err)
		}
		ended <- answer
	}()
	n.execRuns("a")
	if err := n.Upgrade(n.ctx, nextBinary); !errors.Is(err, shim.ErrState) {
		t.Errorf("upgrade during an exec of an older berth: %v", err)
	}
	o.must(n.ctx, "Cancel", `{"call": "77"}`)
	if exit, _ := (<-ended)["exit"].(map[string]any); exit["signal"] != 9.0 {
		t.Errorf("cancelled exec: %v", exit)
	}
	n.upgrade(nextBinary)

	o = n.oldBerth(t) // it connects again
	o.must(n.ctx, "Signal", `{"id": "a", "signal": 15}`)
	if exit := o.must(n.ctx, "Wait", `{"id": "a", "call": "78"}`); exit["code"] != 42.0 || exit["known"] != true {
		t.Errorf("exit: %v", exit)
	}
	o.must(n.ctx, "Delete", `{"id": "a"}`)
	if list := o.must(n.ctx, "List", `{}`); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
}

// serveProtocol1 puts between this berth and a shim one that knows of both what
// version 1 does and no more. It returns a run directory.
func (n *node) serveProtocol1(t *testing.T) string {
	t.Helper()
	run := filepath.Join(n.dir, "old")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(n.run, shim.FDsName), filepath.Join(run, shim.FDsName)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(run, shim.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	to := n.oldBerth(t).conn
	forget := proto.UnmarshalOptions{DiscardUnknown: true}
	// known is what version 1 knows of a message.
	known := func(m *dynamicpb.Message) *dynamicpb.Message {
		b, err := proto.Marshal(m)
		if err == nil {
			m = dynamicpb.NewMessage(m.Descriptor())
			err = forget.Unmarshal(b, m)
		}
		if err != nil {
			t.Error(err)
		}
		return m
	}
	methods := protocol1(t).Methods()
	desc := &ttrpc.ServiceDesc{Methods: make(map[string]ttrpc.Method), Streams: make(map[string]ttrpc.Stream)}
	for i := range methods.Len() {
		m := methods.Get(i)
		name := string(m.Name())
		if m.IsStreamingServer() {
			desc.Streams[name] = ttrpc.Stream{StreamingServer: true, Handler: func(ctx context.Context, s ttrpc.StreamServer) (any, error) {
				in := dynamicpb.NewMessage(m.Input())
				if err := s.RecvMsg(in); err != nil {
					return nil, err
				}
				from, err := to.NewStream(ctx, &ttrpc.StreamDesc{StreamingServer: true}, service, name, known(in))
				for err == nil {
					out := dynamicpb.NewMessage(m.Output())
					if err = from.RecvMsg(out); err == nil {
						err = s.SendMsg(known(out))
					}
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return nil, err
			}}
			continue
		}
		desc.Methods[name] = func(ctx context.Context, decode func(any) error) (any, error) {
			in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
			if err := decode(in); err != nil {
				return nil, err
			}
			if err := to.Call(ctx, service, name, known(in), out); err != nil {
				return nil, err
			}
			if f := m.Output().Fields().ByName("protocol"); f != nil {
				out.Set(f, protoreflect.ValueOfUint32(1))
			}
			return known(out), nil
		}
	}
	srv.RegisterService(service, desc)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.WithoutCancel(t.Context()), l) }()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return run
}

// This berth works with a shim of version 1: containers, execs, attachments and
// events are as with a newer one, and only what came later is missing.
func TestShimOfProtocol1(t *testing.T) {
	n := newNode(t)
	c, err := shim.Dial(n.ctx, n.serveProtocol1(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(n.ctx)
	var mu sync.Mutex
	var kinds []shim.EventKind
	var events sync.WaitGroup
	events.Go(func() {
		_ = c.Events(ctx, func(e shim.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		})
	})
	defer events.Wait()
	defer stop()
	seen := func(k shim.EventKind) {
		t.Helper()
		n.until(fmt.Sprintf("event %d comes", k), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(kinds, k)
		})
	}
	seen(shim.Replayed)

	r := n.bundle("a", nil, "cat")
	r.Stdin, r.StdinOnce = true, true
	if _, err := c.Create(n.ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(n.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	seen(shim.ContainerStarted)
	var out buffer
	if e, err := c.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("both", "x", "y"), Stdout: &out}); err != nil || e.Code != 0 || out.String() != "x\n" {
		t.Errorf("exec: %+v, %q, %v", e, out.String(), err)
	}
	if e, err := c.Exec(n.ctx, shim.ExecRequest{ID: "a", Process: process("sleep"), Timeout: 300 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) || e.Signal != 9 {
		t.Errorf("exec that takes too long: %+v, %v", e, err)
	}
	if err := c.DeleteNotRun(n.ctx, "a"); !errors.Is(err, shim.ErrState) {
		t.Errorf("it runs, and is deleted as one that never ran: %v", err)
	}
	if err := c.Upgrade(n.ctx, nextBinary); !errors.Is(err, shim.ErrUnsupported) {
		t.Errorf("upgrade: %v", err)
	}
	var heard buffer
	if err := c.Attach(n.ctx, shim.AttachRequest{ID: "a", Stdin: strings.NewReader("line\n"), Stdout: &heard}); err != nil || heard.String() != "line\nend of input\n" {
		t.Errorf("attach: %q, %v", heard.String(), err)
	}
	if e, err := c.Wait(n.ctx, "a"); err != nil || e.Code != 0 || !e.Known {
		t.Errorf("exit: %+v, %v", e, err)
	}
	seen(shim.ContainerExited)
	if err := c.Delete(n.ctx, "a"); err != nil {
		t.Error(err)
	}
	never := n.bundle("never", nil, "true")
	if _, err := c.Create(n.ctx, never); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteNotRun(n.ctx, "never"); err != nil {
		t.Error(err)
	}
	b := n.bundle("b", nil, "sleep")
	if _, err := c.Create(n.ctx, b); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(n.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(n.ctx, "b", syscall.SIGKILL, false); err != nil {
		t.Error(err)
	}
	if e, err := c.Wait(n.ctx, "b"); err != nil || e.Signal != int32(syscall.SIGKILL) {
		t.Errorf("exit: %+v, %v", e, err)
	}
}
