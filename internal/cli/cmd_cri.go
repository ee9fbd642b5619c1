package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/criserver"
	"github.com/berth-run/berth/internal/home"
)

// defaultCRIRoot is beside the root of pods that berth run makes: what one of
// them made, the other would remove.
const defaultCRIRoot = home.DefaultRoot + "-cri"

// criOptions are the flags of berth cri.
type criOptions struct {
	listen, streamAddr, registriesDir string
	network, cniConfDir               string
	cniBinDirs                        []string
	imports                           []string
	gc                                gcOptions
}

func criCommand(a *app) *cobra.Command {
	var o criOptions
	c := &cobra.Command{
		Use:   "cri",
		Short: "Serve the container runtime to a kubelet, crictl or others",
		Long: `Serve berth's container runtime over the Kubernetes container runtime interface
(CRI v1: RuntimeService and ImageService) at a unix socket that root alone may
use.

It uses a root of its own (by default ` + defaultCRIRoot + `). Containers run on
when it ends, by whatever cause; the next one takes them over, with the exit codes
of those that ended meanwhile. SIGTERM and SIGINT end it; berth cleanup --root
removes what it made. Under systemd it tells when it is ready (Type=notify).

Pods are connected by CNI plugins if there is a CNI configuration, else by the
built-in bridge; --network says otherwise. A configuration that can't be used is an
error, not a reason to use the bridge. Each pod is disconnected by who connected it.

Logs are not rotated, nor is anything removed that its caller did not ask to
remove: a kubelet does both itself. For others, the --gc flags say what goes by
itself.`,
		Example: `  berth cri --listen unix:///run/berth-cri.sock
  crictl --runtime-endpoint unix:///run/berth-cri.sock ps
  kubelet --container-runtime-endpoint unix:///run/berth-cri.sock …`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{ownRoot: defaultCRIRoot},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.serveCRI(cmd.Context(), o) },
	}
	c.Flags().StringVar(&o.listen, "listen", "", "where to serve: unix:///an/absolute/path (default berth-cri.sock in the run folder)")
	c.Flags().StringVar(&o.streamAddr, "stream-addr", "", "host:port where exec, attach and port-forward are streamed, to whoever has the token of a request (default a free port of 127.0.0.1)")
	c.Flags().StringArrayVar(&o.imports, "import", nil, "folder or archive of images (OCI, docker) to import before serving; may be repeated")
	c.Flags().StringVar(&o.registriesDir, "registries-dir", "", "folder of registry configurations as containerd has them: HOST/hosts.toml")
	c.Flags().StringVar(&o.network, "network", "auto", "who connects pods: cni, bridge, or auto: cni if there is a configuration, else bridge")
	c.Flags().StringVar(&o.cniConfDir, "cni-conf-dir", "", "folder of CNI configurations, the first of which by name counts, at any time (default /etc/cni/net.d)")
	c.Flags().StringSliceVar(&o.cniBinDirs, "cni-bin-dir", nil, "folder of CNI plugins; may be repeated (default /opt/cni/bin and /usr/lib/cni)")
	o.gc.flags(c.Flags())
	return c
}

// serveCRI serves until a signal comes.
func (a *app) serveCRI(ctx context.Context, o criOptions) (err error) {
	if a.logLevel == "" {
		if err := a.log.setLevel("info"); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg := a.config()
	if cfg.NetworkBy, err = agent.ParseNetworkBy(o.network); err != nil {
		return usageError("--network: %v", err)
	}
	cfg.CNIConfDir, cfg.CNIBinDirs = o.cniConfDir, o.cniBinDirs
	cfg.RegistriesDir, cfg.StreamAddr, cfg.LogMaxBytes = o.registriesDir, o.streamAddr, -1
	if cfg.GC, err = o.gc.config(); err != nil {
		return usageError("%v", err)
	}
	if o.listen == "" {
		o.listen = "unix://" + a.home.CRISocket()
	}
	r, err := agent.OpenRuntime(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, path := range o.imports {
		if _, err := r.ImportImages(ctx, path); err != nil {
			return err
		}
	}
	l, err := criserver.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	// The runtime goes on while calls under way end.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, base := errgroup.WithContext(base)
	g.Go(func() error { return r.Run(base) })
	g.Go(func() error {
		defer end()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(base, cancel)() // the runtime is no more
		return criserver.New(criserver.Config{Runtime: r.CRI(), Images: r.CRI(), Log: a.log.logger}).Serve(serving, l)
	})
	a.log.logger.Info("serving the CRI", "endpoint", "unix://"+l.Addr().String(), "root", a.root)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		a.log.logger.Warn("cannot tell systemd that the CRI is served", "err", err)
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("the CRI is not served any more: %w", err)
	}
	a.log.logger.Info("the CRI is not served any more, containers run on")
	return nil
}
