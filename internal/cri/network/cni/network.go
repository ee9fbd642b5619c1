package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/cri/network"
)

const (
	// podLink is the name of a sandbox's interface.
	podLink = "eth0"
	// delTimeout bounds a tear-down, for those who wait without an end.
	delTimeout = time.Minute
	// atOnce is how many sandboxes Reclaim tears down at the same time.
	atOnce = 8
)

// DefaultConfDir is where a machine's configurations are.
const DefaultConfDir = "/etc/cni/net.d"

// DefaultBinDirs are where a machine's plugins are: by hand, and from packages.
func DefaultBinDirs() []string { return []string{"/opt/cni/bin", "/usr/lib/cni"} }

// Config says what a Network uses.
type Config struct {
	StateDir string       // where records are kept; required; outlives the machine's uptime
	ConfDir  string       // folder of configurations; default DefaultConfDir
	BinDirs  []string     // where plugins are looked for; default DefaultBinDirs
	Log      *slog.Logger // default: discard
}

// Network connects sandboxes by CNI plugins. It is safe for concurrent use.
type Network struct {
	cfg     Config
	log     *slog.Logger
	records records

	mu   sync.Mutex      // guards what follows
	left map[string]bool // ids of sandboxes that nobody names and that could not be torn down
}

// New makes a Network. It runs no plugin.
func New(cfg Config) (*Network, error) {
	if cfg.StateDir == "" {
		return nil, errors.New("cni: Config.StateDir is required")
	}
	if cfg.ConfDir == "" {
		cfg.ConfDir = DefaultConfDir
	}
	if len(cfg.BinDirs) == 0 {
		cfg.BinDirs = DefaultBinDirs()
	}
	// Records outlive the process and its current folder.
	cfg.BinDirs = slices.Clone(cfg.BinDirs)
	for _, dir := range append([]*string{&cfg.StateDir, &cfg.ConfDir}, pointers(cfg.BinDirs)...) {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("cannot find %s: %w", *dir, err)
		}
		*dir = abs
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Network{
		cfg: cfg, log: cfg.Log, left: make(map[string]bool),
		records: records{dir: filepath.Join(cfg.StateDir, "sandboxes"), wait: heldWait, log: cfg.Log},
	}
	if err := n.records.sweep(); err != nil {
		return nil, fmt.Errorf("cannot open the records of sandboxes with a CNI network: %w", err)
	}
	return n, nil
}

func pointers(list []string) []*string {
	var all []*string
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// lib is libcni with these plugins.
func (n *Network) lib(dirs []string, held *os.File) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(dirs, filepath.Join(n.cfg.StateDir, "cache"), plugins{held: held, log: n.log})
}

// Setup connects a sandbox as the configuration of this moment says. A sandbox has
// one network: a second Setup without a Teardown fails. After a failure nothing is
// left, or what is left is removed later.
func (n *Network) Setup(ctx context.Context, r network.Request) (network.Result, error) {
	c, err := readConf(n.cfg.ConfDir)
	if err != nil {
		return network.Result{}, fmt.Errorf("cannot set up the pod's network: %w", err)
	}
	return n.setup(ctx, r, c)
}

func (n *Network) setup(ctx context.Context, req network.Request, c *conf) (network.Result, error) {
	r := record{
		ID: req.ID, Name: req.Name, NetNS: req.NetNS, File: c.file, Config: c.whole,
		Dirs: n.cfg.BinDirs, Arguments: arguments(req),
	}
	ips, err := n.connect(ctx, req, r, c)
	if err != nil {
		return network.Result{}, fmt.Errorf("cannot set up the pod's network by %s: %w", c.file, err)
	}
	return network.Result{IPs: ips}, nil
}

func (n *Network) connect(ctx context.Context, req network.Request, r record, c *conf) (ips []netip.Addr, err error) {
	if invalid := utils.ValidateContainerID(r.ID); invalid != nil {
		return nil, invalid
	}
	if r.Capabilities, err = capabilities(req); err != nil {
		return nil, err
	}
	// What one plugin did could not be undone without the others.
	if err := n.findPrograms(c); err != nil {
		return nil, err
	}
	if len(req.Ports) > 0 && !takes(c.list, portMappings) {
		n.log.Info("no CNI plugin takes host ports; whether they work is up to the network", "id", r.ID, "file", c.file)
	}
	if err := network.LoopbackUp(r.NetNS); err != nil {
		return nil, err
	}
	held, err := n.records.create(r)
	if err != nil {
		return nil, fmt.Errorf("cannot record it: %w", err)
	}
	defer held.Close()
	result, err := n.lib(r.Dirs, held).AddNetworkList(ctx, c.list, r.runtimeConf())
	if err == nil {
		ips, err = addresses(result)
	}
	if err == nil {
		return ips, nil
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	if undo := n.disconnect(undoing, r, held); undo != nil {
		n.leave(r.ID)
		err = errors.Join(err, undo)
	}
	return nil, err
}

func (r record) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: r.ID, NetNS: r.NetNS, IfName: podLink,
		Args: r.Arguments, CapabilityArgs: r.Capabilities,
	}
}

// addresses are those that plugins gave to the sandbox's interface, IPv4 first.
func addresses(result types.Result) ([]netip.Addr, error) {
	r, err := current.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("cannot read what the plugins answer: %w", err)
	}
	var ips []netip.Addr
	for _, c := range r.IPs {
		if i := c.Interface; i != nil {
			if *i < 0 || *i >= len(r.Interfaces) {
				return nil, fmt.Errorf("cannot read what the plugins answer: there is no interface %d of %d", *i, len(r.Interfaces))
			}
			if r.Interfaces[*i].Name != podLink {
				continue // of the host's side, or of a second interface
			}
		}
		if ip, ok := netip.AddrFromSlice(c.Address.IP); ok {
			ips = append(ips, ip.Unmap())
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("the plugins gave %s no address", podLink)
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return ips, nil
}

// Teardown disconnects a sandbox with what it was connected with. One that was
// never connected by CNI, or is no more, is no error.
func (n *Network) Teardown(ctx context.Context, id string) error {
	if utils.ValidateContainerID(id) != nil {
		return nil // none of ours
	}
	r, held, err := n.records.take(ctx, id)
	switch {
	case err == nil:
		err = n.disconnect(ctx, r, held)
		held.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return fmt.Errorf("cannot tear down the network of pod %s: %w", id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.left, id)
	return nil
}

// disconnect needs the record held.
func (n *Network) disconnect(ctx context.Context, r record, held *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	list, err := libcni.NetworkConfFromBytes(r.Config)
	if err != nil {
		return fmt.Errorf("the record %s is damaged: %w", n.records.path(r.ID), err)
	}
	rt := r.runtimeConf()
	if !isNamespace(rt.NetNS) {
		rt.NetNS = "" // plugins free what is outside of it
	}
	if err := n.lib(n.dirsOf(r), held).DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("%w (as %s said; what is known of it is in %s)", err, r.File, n.records.path(r.ID))
	}
	return n.records.remove(r.ID)
}

// dirsOf looks for plugins where they were, and then where they are now.
func (n *Network) dirsOf(r record) []string {
	dirs := slices.Clone(r.Dirs)
	for _, dir := range n.cfg.BinDirs {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// isNamespace reports whether a namespace is held at path.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// leave remembers a sandbox that nobody will name again.
func (n *Network) leave(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left[id] = true
}

// Reclaim tears down each sandbox that live does not name, and returns how many
// there were. What fails is tried again by Retry.
func (n *Network) Reclaim(ctx context.Context, live func(id string) bool) (int, error) {
	ids, err := n.records.list()
	if err != nil {
		return 0, err
	}
	ids = slices.DeleteFunc(ids, live)
	return n.teardownAll(ctx, ids)
}

// Retry tears down what should have gone before.
func (n *Network) Retry(ctx context.Context) error {
	n.mu.Lock()
	var ids []string
	for id := range n.left {
		ids = append(ids, id)
	}
	n.mu.Unlock()
	_, err := n.teardownAll(ctx, ids)
	return err
}

// teardownAll tears down sandboxes that nobody names.
func (n *Network) teardownAll(ctx context.Context, ids []string) (done int, err error) {
	errs := make([]error, len(ids))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, id := range ids {
		g.Go(func() error {
			if errs[i] = n.Teardown(ctx, id); errs[i] != nil {
				n.leave(id)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in errs
	for i, id := range ids {
		if errs[i] == nil {
			done++
			n.log.Info("reclaimed the network of a pod that is gone", "id", id)
		}
	}
	return done, errors.Join(errs...)
}

// Cleanup tears down all sandboxes and removes the state. If a sandbox can't be
// torn down, what is known of it stays.
func (n *Network) Cleanup(ctx context.Context) error {
	if _, err := n.Reclaim(ctx, func(string) bool { return false }); err != nil {
		return fmt.Errorf("cannot clean up the CNI network of pods: %w", err)
	}
	return os.RemoveAll(n.cfg.StateDir)
}
