package network

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/internal/cri/network/ipam"
)

const (
	// DefaultBridge is the name of the bridge when none is configured.
	DefaultBridge = "berth0"
	// maxLinkName is the longest interface name that Linux takes, in bytes.
	maxLinkName = 15
	// maxAlias is the longest alias of an interface that Linux takes, in bytes.
	maxAlias = 255
	// bridgeAlias and the folder of the state mark a bridge as ours.
	bridgeAlias = "berth network of "
)

// DefaultCIDR is the range of pod addresses when none is configured. It keeps
// clear of the defaults of Docker (172.16.0.0/12), Podman (10.88.0.0/15), k3s
// (10.42.0.0/15), kubeadm with flannel (10.244.0.0/16), Kubernetes' services
// (10.96.0.0/12) and of the low 10.x ranges of home and office networks.
func DefaultCIDR() netip.Prefix { return netip.MustParsePrefix("10.214.0.0/16") }

// DefaultCIDR6 is a range that a caller who wants both families can use. It is
// a unique local range (RFC 4193).
func DefaultCIDR6() netip.Prefix { return netip.MustParsePrefix("fdbe:12d4:c0de::/64") }

// Config says what a Network uses. Several Networks may exist on one machine if
// they differ in StateDir, Bridge and ranges.
type Config struct {
	StateDir string       // where leases are kept; required; one process at a time
	Bridge   string       // name of the bridge; default DefaultBridge
	CIDR     netip.Prefix // addresses of the pods; default DefaultCIDR
	CIDR6    netip.Prefix // IPv6 addresses of the pods; not set: IPv4 only
	MTU      int          // bytes; default: that of the link with the default route
	Log      *slog.Logger // default: discard
}

func (c *Config) complete() error {
	if c.Bridge == "" {
		c.Bridge = DefaultBridge
	}
	if !c.CIDR.IsValid() {
		c.CIDR = DefaultCIDR()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if c.StateDir == "" {
		errs = append(errs, errors.New("network: Config.StateDir is required"))
	} else if dir, err := filepath.Abs(c.StateDir); err != nil {
		errs = append(errs, err)
	} else if c.StateDir = dir; len(bridgeAlias+dir) > maxAlias {
		errs = append(errs, fmt.Errorf("network: Config.StateDir has %d bytes, want at most %d", len(dir), maxAlias-len(bridgeAlias)))
	}
	if len(c.Bridge) > maxLinkName || strings.ContainsAny(c.Bridge, "/ \t\n:") || c.Bridge == "." || c.Bridge == ".." {
		errs = append(errs, fmt.Errorf("network: %q is not a name for a bridge: at most %d bytes without space, colon or slash", c.Bridge, maxLinkName))
	}
	if err := ValidateRange(c.CIDR); err != nil {
		errs = append(errs, fmt.Errorf("network: %w", err))
	}
	if c.CIDR6.IsValid() {
		if err := ValidateRange6(c.CIDR6); err != nil {
			errs = append(errs, fmt.Errorf("network: %w", err))
		}
	}
	if c.MTU != 0 && c.MTU < 1280 {
		errs = append(errs, fmt.Errorf("network: Config.MTU is %d, want 0 or at least 1280", c.MTU))
	}
	return errors.Join(errs...)
}

// ValidateRange says why an IPv4 range can't be that of pods on any machine.
func ValidateRange(cidr netip.Prefix) error {
	if err := ipam.Validate(cidr); err != nil {
		return fmt.Errorf("cannot use %s for pods: %w; choose another with --network-cidr", cidr, err)
	}
	if !cidr.Addr().Is4() {
		return fmt.Errorf("cannot use %s for pods: it is not IPv4; choose an IPv4 range with --network-cidr", cidr)
	}
	return nil
}

// ValidateRange6 is ValidateRange for an IPv6 range.
func ValidateRange6(cidr netip.Prefix) error {
	if cidr.IsValid() && cidr.Addr().Is4() {
		return fmt.Errorf("cannot use %s for pods: it is not IPv6; choose an IPv6 range as the second of --network-cidr", cidr)
	}
	if err := ipam.Validate(cidr); err != nil {
		return fmt.Errorf("cannot use %s for pods: %w; choose another with --network-cidr", cidr, err)
	}
	return nil
}
