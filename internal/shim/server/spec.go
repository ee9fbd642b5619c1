package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim"
)

// loadSpec reads and checks a bundle's config.json.
func loadSpec(bundle string) (*specs.Spec, error) {
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("cannot read bundle: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return nil, fmt.Errorf("cannot read bundle %s: config.json: %w", bundle, err)
	}
	if spec.Linux == nil || spec.Root == nil {
		return nil, fmt.Errorf("cannot use bundle %s: config.json has no linux or root section", bundle)
	}
	if p := spec.Linux.CgroupsPath; !cleanAbs(p) || p == "/" {
		return nil, fmt.Errorf("cannot use bundle %s: linux.cgroupsPath is %q, want an absolute path below the root", bundle, p)
	}
	if err := checkProcess(spec.Process); err != nil {
		return nil, fmt.Errorf("cannot use bundle %s: %w", bundle, err)
	}
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(bundle, spec.Root.Path)
	}
	return &spec, nil
}

func checkProcess(p *specs.Process) error {
	switch {
	case p == nil:
		return errors.New("there is no process")
	case len(p.Args) == 0 || p.Args[0] == "":
		return &shim.StartError{Reason: shim.CommandNotFound, Message: "no command specified"}
	case !filepath.IsAbs(p.Cwd):
		return fmt.Errorf("working directory %q is not absolute", p.Cwd)
	}
	return nil
}

// libcontainerConfig turns a spec into libcontainer's configuration, within what
// this machine allows.
func (s *Server) libcontainerConfig(id, bundle string, spec *specs.Spec) (*configs.Config, error) {
	// specconv takes the bundle from the working directory, which a process
	// with many bundles can't set; it is used for this label and for relative
	// paths, which loadSpec made absolute.
	var config *configs.Config
	err := s.undisturbed(func() (err error) { // a helper reads the mappings of a user namespace
		config, err = specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: id, Spec: spec})
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, l := range config.Labels {
		if strings.HasPrefix(l, "bundle=") {
			config.Labels[i] = "bundle=" + bundle
		}
	}
	config.OomScoreAdj = s.limits.oomScoreAdj(config.OomScoreAdj)
	if config.Rlimits, err = s.limits.rlimits(config.Rlimits); err != nil {
		return nil, err
	}
	config.Seccomp = s.profiles.share(config.Seccomp)
	return config, nil
}

// newProcess turns an OCI process into libcontainer's.
func (s *Server) newProcess(p *specs.Process) (*libcontainer.Process, error) {
	lp := &libcontainer.Process{
		Args: p.Args, Env: p.Env, Cwd: p.Cwd,
		UID: int(p.User.UID), GID: int(p.User.GID),
		Label: p.SelinuxLabel, AppArmorProfile: p.ApparmorProfile,
		NoNewPrivileges: &p.NoNewPrivileges,
		Scheduler:       p.Scheduler, IOPriority: p.IOPriority,
		LogLevel: "3", // logrus's warning: errors of init come back to us
	}
	if p.ConsoleSize != nil {
		lp.ConsoleWidth, lp.ConsoleHeight = uint16(p.ConsoleSize.Width), uint16(p.ConsoleSize.Height)
	}
	if c := p.Capabilities; c != nil {
		lp.Capabilities = &configs.Capabilities{
			Bounding: c.Bounding, Effective: c.Effective, Inheritable: c.Inheritable,
			Permitted: c.Permitted, Ambient: c.Ambient,
		}
	}
	for _, g := range p.User.AdditionalGids {
		lp.AdditionalGroups = append(lp.AdditionalGroups, int(g))
	}
	var rlimits []configs.Rlimit
	for _, r := range p.Rlimits {
		kind, ok := rlimitKinds[r.Type]
		if !ok {
			return nil, fmt.Errorf("resource limit %q is not known", r.Type)
		}
		rlimits = append(rlimits, configs.Rlimit{Type: kind, Soft: r.Soft, Hard: r.Hard})
	}
	var err error
	if lp.Rlimits, err = s.limits.rlimits(rlimits); err != nil {
		return nil, err
	}
	if lp.CPUAffinity, err = configs.ConvertCPUAffinity(p.ExecCPUAffinity); err != nil {
		return nil, err
	}
	return lp, nil
}

var rlimitKinds = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
	"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

// startError gives libcontainer's error, which is text from another process, a
// reason. The texts are those of Go's os/exec, which runc and so every user of
// Kubernetes knows.
func startError(err error) *shim.StartError {
	var se *shim.StartError
	if errors.As(err, &se) {
		return se
	}
	msg := err.Error()
	reason := shim.StartFailed
	if strings.Contains(msg, "exec: ") {
		switch {
		case strings.Contains(msg, "executable file not found in $PATH"),
			strings.Contains(msg, "no such file or directory"),
			strings.Contains(msg, "not a directory"):
			reason = shim.CommandNotFound
		case strings.Contains(msg, "permission denied"), strings.Contains(msg, "is a directory"):
			reason = shim.PermissionDenied
		}
	}
	return &shim.StartError{Reason: reason, Message: msg}
}
