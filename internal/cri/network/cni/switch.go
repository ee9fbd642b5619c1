package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/berth-run/berth/internal/cri/network"
)

// By says who connects sandboxes.
type By string

const (
	Bridge By = "bridge" // berth's own bridge
	CNI    By = "cni"    // CNI plugins; without a configuration none is connected
	Auto   By = "auto"   // CNI plugins if there is a configuration, else the bridge
)

// ParseBy reads a By.
func ParseBy(text string) (By, error) {
	if by := By(text); slices.Contains([]By{Bridge, CNI, Auto}, by) {
		return by, nil
	}
	return "", fmt.Errorf("%q does not say who connects pods; use %s, %s or %s", text, Auto, CNI, Bridge)
}

// SwitchConfig says what a Switch chooses from.
type SwitchConfig struct {
	By     By             // default Bridge
	Bridge network.Config // of the bridge
	// Fixed says that the bridge's ranges were asked for: those that a cluster
	// chooses are not used.
	Fixed bool
	CNI   Config
}

// Switch is the network of a node: CNI and a bridge. Each sandbox is torn down by
// who connected it, whoever that would be now. It is safe for concurrent use.
type Switch struct {
	cfg SwitchConfig
	log *slog.Logger
	cni *Network

	// using is held by all who use what follows, and wholly by who replaces it.
	using     *semaphore.Weighted
	bridge    *network.Network
	bridgeCfg network.Config

	mu     sync.Mutex
	wanted []netip.Prefix // ranges that the bridge is to have; nil: those it has
}

const everyone = 1 << 30 // weight of all who use the bridge

// NewSwitch opens both networks. It changes nothing in the kernel.
func NewSwitch(cfg SwitchConfig) (*Switch, error) {
	if cfg.By == "" {
		cfg.By = Bridge
	}
	if cfg.Bridge.Log == nil {
		cfg.Bridge.Log = slog.New(slog.DiscardHandler)
	}
	s := &Switch{cfg: cfg, log: cfg.Bridge.Log, bridgeCfg: cfg.Bridge, using: semaphore.NewWeighted(everyone)}
	var err error
	if s.cni, err = New(cfg.CNI); err != nil {
		return nil, err
	}
	if s.bridge, err = network.New(cfg.Bridge); err != nil {
		return nil, err
	}
	if !cfg.Fixed {
		if s.wanted, err = s.readRanges(); err != nil {
			s.log.Warn("cannot read which ranges the cluster chose for pods, it is to tell them again", "err", err)
		}
	}
	return s, nil
}

// conf is the configuration to connect sandboxes by; nil: the bridge does.
func (s *Switch) conf() (*conf, error) {
	if s.cfg.By == Bridge {
		return nil, nil
	}
	c, err := readConf(s.cni.cfg.ConfDir)
	if s.cfg.By == Auto && errors.Is(err, errNoConf) {
		return nil, nil
	}
	return c, err
}

// withBridge calls f with the bridge, which is not replaced meanwhile.
func (s *Switch) withBridge(ctx context.Context, f func(*network.Network) error) error {
	if err := s.using.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.using.Release(1)
	return f(s.bridge)
}

// Setup connects a sandbox. A configuration that can't be used is an error, and
// not a reason to use the bridge.
func (s *Switch) Setup(ctx context.Context, r network.Request) (res network.Result, err error) {
	c, err := s.conf()
	if err != nil {
		return res, fmt.Errorf("cannot set up the pod's network: %w", err)
	}
	if c != nil {
		return s.cni.setup(ctx, r, c)
	}
	if err := s.renumber(ctx); err != nil {
		return res, err
	}
	err = s.withBridge(ctx, func(b *network.Network) error {
		res, err = b.Setup(ctx, r)
		return err
	})
	return res, err
}

// Teardown disconnects a sandbox. It may be repeated, and needs no namespace.
func (s *Switch) Teardown(ctx context.Context, id string) error {
	return errors.Join(s.cni.Teardown(ctx, id),
		s.withBridge(ctx, func(b *network.Network) error { return b.Teardown(ctx, id) }))
}

// Reclaim tears down the sandboxes that live does not name.
func (s *Switch) Reclaim(ctx context.Context, live func(id string) bool) (int, error) {
	done, err := s.cni.Reclaim(ctx, live)
	return done, errors.Join(err, s.withBridge(ctx, func(b *network.Network) error {
		n, err := b.Reclaim(ctx, live)
		done += n
		return err
	}))
}

// Cleanup removes everything that either ever made. The Switch can't be used
// afterwards.
func (s *Switch) Cleanup(ctx context.Context) error {
	return errors.Join(s.cni.Cleanup(ctx),
		s.withBridge(ctx, func(b *network.Network) error { return b.Cleanup(ctx) }))
}

// Up puts the bridge right if a sandbox is connected to it.
func (s *Switch) Up(ctx context.Context) error {
	return s.withBridge(ctx, func(b *network.Network) error {
		if len(b.List()) == 0 {
			return nil
		}
		return b.Up(ctx)
	})
}

// Check is Up if something was changed from outside. It also tears down what
// could not be torn down before and nobody names any more.
func (s *Switch) Check(ctx context.Context) error {
	return errors.Join(s.cni.Retry(ctx), s.withBridge(ctx, func(b *network.Network) error {
		if len(b.List()) == 0 {
			return nil
		}
		return b.Check(ctx)
	}))
}

// Close lets go of what is open. Sandboxes keep their network.
func (s *Switch) Close() error {
	return s.withBridge(context.Background(), (*network.Network).Close)
}

// Status says whether a sandbox can be connected now, and by whom.
func (s *Switch) Status(ctx context.Context) network.Status {
	c, err := s.conf()
	st := network.Status{Info: map[string]string{}}
	switch {
	case c != nil || err != nil:
		st = s.cni.status(ctx, c, err)
	case s.cfg.By == Auto:
		st = s.cni.Status(ctx) // tells where a configuration is looked for
	}
	if c != nil || err != nil {
		st.Info["network"] = string(CNI)
		return st
	}
	st.Err = s.withBridge(ctx, func(b *network.Network) error {
		st.Info["network"] = fmt.Sprintf("%s %s %s", Bridge, s.bridgeCfg.Bridge, join(b.Ranges()))
		return nil
	})
	return st
}
