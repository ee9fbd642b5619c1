package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/network/cni"
	"github.com/berth-run/berth/internal/home"
)

// Config says where an Agent works. The zero value of an optional field means
// its default. Agents with different roots do not disturb each other: what the
// defaults name after the root differs too.
type Config struct {
	Root string // database, images, volumes, logs; see home.Find
	Run  string // sockets and state that ends with the machine; see home.Find

	ShimBinary string // berth-shim; default: beside this program, then in PATH
	DemoBinary string // berth-demo, for the demo image; default likewise, or none

	Bridge string       // default by Root
	CIDR   netip.Prefix // IPv4 addresses of pods; default those in use, else by Root
	CIDR6  netip.Prefix // IPv6 addresses of pods, with CIDR only; default those in use, else none
	// NetworkBy says who connects pods; default the bridge. CNIConfDir and CNIBinDirs
	// are where CNI configurations and plugins are; default those of the machine.
	NetworkBy  cni.By
	CNIConfDir string
	CNIBinDirs []string

	CgroupRoot string // parent of all pods' cgroups; default by Root

	RegistriesDir string // containerd-style hosts.toml folders; optional

	PodPids int64 // processes and threads that a pod may have, or NoLimit; default that of the agent before, else NoLimit

	LogMaxBytes int64 // size at which a container's log is rotated; default 10 MiB, negative: never
	LogMaxFiles int   // files kept for each container; default 5

	// Handlers run the containers of pods and sandboxes that ask for them by name.
	// Default those of the agent before; for berth cri none.
	Handlers []cri.RuntimeHandler

	GC cri.GC // what berth cri removes by itself: images if ImageLimits are set; default nothing

	StreamAddr string // host:port where exec and the like are served; default a free port of 127.0.0.1

	Log *slog.Logger // default: discard

	home   home.Home // Root and Run
	ranged bool      // CIDR was asked for
	anyUse bool      // a root is taken whatever it is used for, to clean it up
}

// complete fills in defaults and returns all that is wrong.
func (c *Config) complete() error {
	var err error
	if c.home, err = home.Find(c.Root, c.Run); err != nil {
		return err
	}
	var errs []error
	mark := c.home.Mark
	c.ranged = c.CIDR.IsValid()
	if c.Bridge == "" {
		c.Bridge = "berth0"
		if mark != "" {
			c.Bridge = "berth" + mark
		}
	}
	if c.CgroupRoot == "" {
		c.CgroupRoot = "/berth" + mark
	}
	if c.ShimBinary == "" {
		if c.ShimBinary, err = findBinary("berth-shim"); err != nil {
			errs = append(errs, err)
		}
	}
	if c.DemoBinary == "" {
		// Only pods that use the demo image miss it.
		c.DemoBinary, _ = findBinary("berth-demo")
	}
	if c.LogMaxBytes == 0 {
		c.LogMaxBytes = 10 << 20
	}
	if c.LogMaxFiles == 0 {
		c.LogMaxFiles = 5
	}
	if c.LogMaxFiles < 2 {
		errs = append(errs, fmt.Errorf("agent: Config.LogMaxFiles is %d, want at least 2", c.LogMaxFiles))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// ParseNetworkBy reads who is to connect pods.
func ParseNetworkBy(text string) (cni.By, error) { return cni.ParseBy(text) }

// ForCleanup is a configuration to clean up with, whatever the root is used for.
func (c Config) ForCleanup() Config {
	c.anyUse = true
	return c
}

// findBinary looks for one of berth's programs beside this one, then in PATH.
func findBinary(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			beside := filepath.Join(filepath.Dir(self), name)
			if isProgram(beside) {
				return beside, nil
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if p := filepath.Join(dir, name); filepath.IsAbs(p) && isProgram(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("cannot find %s beside %s or in PATH: install it there (make build leaves it in bin/)", name, self)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
