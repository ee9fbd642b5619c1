package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
)

// DefaultRoot is where berth keeps what outlives the machine's uptime.
const DefaultRoot = "/var/lib/berth"

// Config says where an Agent works. The zero value of an optional field means
// its default. Agents with different roots do not disturb each other: what the
// defaults name after the root differs too.
type Config struct {
	Root string // database, images, volumes, logs; default DefaultRoot
	Run  string // sockets and state that ends with the machine; default by Root

	ShimBinary string // berth-shim; default: beside this program, then in PATH
	DemoBinary string // berth-demo, for the demo image; default likewise, or none

	Bridge     string       // default by Root
	CIDR       netip.Prefix // IPv4 addresses of pods; default those in use, else by Root
	CIDR6      netip.Prefix // IPv6 addresses of pods, with CIDR only; default those in use, else none
	CgroupRoot string       // parent of all pods' cgroups; default by Root

	RegistriesDir string // containerd-style hosts.toml folders; optional

	PodPids int64 // processes and threads that a pod may have, or NoLimit; default that of the agent before, else NoLimit

	LogMaxBytes int64 // size at which a container's log is rotated; default 10 MiB
	LogMaxFiles int   // files kept for each container; default 5

	Log *slog.Logger // default: discard
}

// complete fills in defaults and returns all that is wrong.
func (c *Config) complete() error {
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	var errs []error
	abs, err := filepath.Abs(c.Root)
	errs = append(errs, err)
	c.Root = abs
	mark := rootMark(c.Root)
	if c.Run == "" {
		c.Run = "/run/berth" + mark
	}
	if c.Run, err = filepath.Abs(c.Run); err != nil {
		errs = append(errs, err)
	}
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

// rootMark tells the names of things outside the root apart; empty for the
// default root.
func rootMark(root string) string {
	if root == DefaultRoot {
		return ""
	}
	sum := sha256.Sum256([]byte(root))
	return "-" + hex.EncodeToString(sum[:3])
}

// Paths below the root and the run folder.
func (c *Config) database() string { return filepath.Join(c.Root, "berth.db") }
func (c *Config) images() string   { return filepath.Join(c.Root, "images") }
func (c *Config) logs() string     { return filepath.Join(c.Root, "logs", "pods") }
func (c *Config) lock() string     { return filepath.Join(c.Root, "agent.lock") }
func (c *Config) shim() string     { return filepath.Join(c.Run, "shim") }
func (c *Config) cri() string      { return filepath.Join(c.Run, "cri") }
func (c *Config) network() string  { return filepath.Join(c.Run, "network") }

// Socket is where an agent of this configuration can be talked to.
func (c Config) Socket() (string, error) {
	c.ShimBinary, c.DemoBinary = "-", "-" // not needed to find the socket
	if err := c.complete(); err != nil {
		return "", err
	}
	return filepath.Join(c.Run, "berth.sock"), nil
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
