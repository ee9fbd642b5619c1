package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// EnsureConfig says where the shim is and how it is started. The zero value of
// an optional field means its default.
type EnsureConfig struct {
	Binary string // path of berth-shim; required by Ensure
	RunDir string // folder of the shim's sockets and state, best on a tmpfs; required
	// Cgroup is the cgroup path (below each hierarchy's root) that a started
	// shim moves to, so that it does not end with berth's. Empty: it stays in
	// berth's. Not being able to move is no error.
	Cgroup   string
	Patience time.Duration // how long to try to connect; default 10 s
	Log      *slog.Logger  // default: discard
}

func (c *EnsureConfig) setDefaults() {
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func (c *EnsureConfig) validate() error {
	var errs []error
	if c.Binary == "" {
		errs = append(errs, errors.New("shim: EnsureConfig.Binary is required"))
	}
	if !filepath.IsAbs(c.RunDir) {
		errs = append(errs, fmt.Errorf("shim: EnsureConfig.RunDir is %q, want an absolute path", c.RunDir))
	}
	return errors.Join(errs...)
}

// Ensure returns a client of the shim that serves cfg.RunDir, and starts one if
// none answers: in a session of its own, its standard error going to
// RunDir/shim.log. Of several programs that do so at once, one succeeds and all
// use the same shim. The client does the same again whenever the shim is gone.
//
// A shim that runs another program than Binary is upgraded first (see Upgrade), if
// it can be; else it goes on as it is and the log says why.
func Ensure(ctx context.Context, cfg EnsureConfig) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	c := newClient(cfg)
	if _, err := c.connection(ctx); err != nil {
		return nil, err
	}
	if err := c.upgradeOutdated(ctx); err != nil {
		cfg.Log.Warn("the shim goes on with its former program", "err", err)
	}
	// An upgrade may have ended with no shim at all.
	if _, err := c.connection(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// AlreadyServed is the exit code of `berth-shim serve` when another shim serves
// the run directory.
const AlreadyServed = 3

// startShim starts a shim and returns when it, or one that was faster, serves.
// `serve --detach` starts the real process and ends, so that the shim is no
// child of this process, which might not reap it.
func (c *Client) startShim(ctx context.Context) error {
	args := []string{"serve", "--detach", "--run", c.cfg.RunDir}
	if c.cfg.Cgroup != "" {
		args = append(args, "--cgroup", c.cfg.Cgroup)
	}
	cmd := exec.CommandContext(ctx, c.cfg.Binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		c.cfg.Log.Info("shim started", "run", c.cfg.RunDir, "took", time.Since(began))
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == AlreadyServed:
		return nil
	case stderr.Len() > 0:
		return fmt.Errorf("cannot start %s: %s", c.cfg.Binary, strings.TrimSpace(stderr.String()))
	}
	return fmt.Errorf("cannot start %s: %w", c.cfg.Binary, err)
}

func (c *EnsureConfig) path(name string) string { return filepath.Join(c.RunDir, name) }
