package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/internal/cri/network"
)

// UseRanges takes the ranges that a cluster has chosen for the pods of this node.
// The bridge gets them as soon as no sandbox has an address of its old ones; they
// are remembered, for a cluster tells them only once. Ranges that were asked for
// stay. CNI plugins have their ranges from their configuration.
func (s *Switch) UseRanges(ctx context.Context, ranges []netip.Prefix) error {
	if s.cfg.Fixed || s.cfg.By == CNI || len(ranges) == 0 {
		return nil
	}
	ranges, err := forBridge(ranges)
	if err != nil {
		return err
	}
	if err := s.saveRanges(ranges); err != nil {
		return fmt.Errorf("cannot remember the ranges of pods: %w", err)
	}
	s.want(ranges)
	return s.renumber(ctx)
}

// forBridge are ranges as the bridge can have them: an IPv4 one, and then perhaps
// an IPv6 one.
func forBridge(ranges []netip.Prefix) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, v4 := range []bool{true, false} {
		i := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() == v4 })
		if i < 0 && v4 {
			return nil, fmt.Errorf("cannot use %s for pods: the built-in bridge needs an IPv4 range; use a CNI configuration", join(ranges))
		}
		if i < 0 {
			continue
		}
		validate := network.ValidateRange
		if !v4 {
			validate = network.ValidateRange6
		}
		if err := validate(ranges[i]); err != nil {
			return nil, err
		}
		out = append(out, ranges[i])
	}
	return out, nil
}

func (s *Switch) want(ranges []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = ranges
}

// renumber gives the bridge the ranges that are wanted, if nobody has an address
// of it.
func (s *Switch) renumber(ctx context.Context) error {
	s.mu.Lock()
	wanted := s.wanted
	s.mu.Unlock()
	if wanted == nil {
		return nil
	}
	var same, used bool
	err := s.withBridge(ctx, func(b *network.Network) error {
		same, used = slices.Equal(b.Ranges(), wanted), len(b.List()) > 0
		return nil
	})
	switch {
	case err != nil:
		return err
	case same:
		s.want(nil)
		return nil
	case used:
		s.log.Info("the ranges that the cluster chose for pods are used when no pod has an address of another any more", "ranges", join(wanted))
		return nil
	}
	if err := s.using.Acquire(ctx, everyone); err != nil {
		return err
	}
	defer s.using.Release(everyone)
	if len(s.bridge.List()) > 0 {
		return nil // somebody was faster
	}
	if err := s.replaceBridge(ctx, wanted); err != nil {
		return fmt.Errorf("cannot give the bridge the ranges that the cluster chose for pods: %w", err)
	}
	s.want(nil)
	s.log.Info("pods get addresses of the ranges that the cluster chose", "ranges", join(wanted))
	return nil
}

// replaceBridge makes a bridge with other ranges; after an error it is the old
// one. The caller holds using wholly.
func (s *Switch) replaceBridge(ctx context.Context, ranges []netip.Prefix) error {
	cfg := s.bridgeCfg
	cfg.CIDR, cfg.CIDR6 = ranges[0], netip.Prefix{}
	if len(ranges) > 1 {
		cfg.CIDR6 = ranges[1]
	}
	err := s.bridge.Cleanup(ctx)
	if err == nil {
		var b *network.Network
		if b, err = network.New(cfg); err == nil {
			s.bridge, s.bridgeCfg = b, cfg
			return nil
		}
	}
	old, again := network.New(s.bridgeCfg)
	if again == nil {
		s.bridge = old
	}
	return errors.Join(err, again)
}

func join(ranges []netip.Prefix) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// rangesFile is where ranges are remembered.
func (s *Switch) rangesFile() string { return filepath.Join(s.cni.cfg.StateDir, "pod-ranges") }

func (s *Switch) readRanges() ([]netip.Prefix, error) {
	raw, err := os.ReadFile(s.rangesFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return network.ParseRanges(strings.TrimSpace(string(raw)))
}

func (s *Switch) saveRanges(ranges []netip.Prefix) error {
	file := s.rangesFile()
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file+newSuffix, []byte(join(ranges)+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(file+newSuffix, file)
	}
	return err
}
