package ocispec

import (
	"errors"
	"slices"
	"strings"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultPath is $PATH of images that set none, as in containerd and Docker.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ErrNoCommand means that neither the pod nor the image says what to run.
var ErrNoCommand = errors.New("no command specified: neither the container nor its image names one")

func setProcess(s *specs.Spec, in Input) error {
	args, err := Args(in.Config, in.Image)
	if err != nil {
		return err
	}
	p := s.Process
	p.Args = args
	p.Terminal = in.Config.GetTty()
	p.Env = environment(in)
	p.Rlimits = nil // those of the shim; see WithoutDefaultSecuritySettings in containerd
	p.NoNewPrivileges = in.securityContext().GetNoNewPrivs()
	p.User = specs.User{UID: in.User.UID, GID: in.User.GID, AdditionalGids: slices.Clone(in.User.Groups)}
	p.Cwd = workingDir(in)
	if r := in.Config.GetLinux().GetResources(); r != nil {
		adj := max(int(r.GetOomScoreAdj()), in.Host.OOMScoreFloor)
		p.OOMScoreAdj = &adj
	}
	return nil
}

// Args merges the container's command and arguments with the image's
// entrypoint and command: a command replaces both of the image's, arguments
// alone replace only its command.
func Args(c *runtimeapi.ContainerConfig, image *imgspec.ImageConfig) ([]string, error) {
	command, args := c.GetCommand(), c.GetArgs()
	if len(command) == 0 {
		if len(args) == 0 {
			args = image.Cmd
		}
		// An entrypoint of one empty string resets that of a base image.
		if len(image.Entrypoint) != 1 || image.Entrypoint[0] != "" {
			command = image.Entrypoint
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return nil, ErrNoCommand
	}
	return all, nil
}

func workingDir(in Input) string {
	for _, dir := range []string{in.Config.GetWorkingDir(), in.Image.WorkingDir} {
		if dir == "" {
			continue
		}
		if !strings.HasPrefix(dir, "/") {
			// The OCI specification wants an absolute path; images built
			// carelessly have relative ones, which are meant from the root.
			return "/" + dir
		}
		return dir
	}
	return "/"
}

// environment puts together, later ones winning: defaults, the image's, the
// container's. Order is that of first appearance.
func environment(in Input) []string {
	env := []string{defaultPath}
	if in.Config.GetTty() {
		env = append(env, "TERM=xterm")
	}
	if in.Hostname != "" {
		env = append(env, "HOSTNAME="+in.Hostname)
	}
	add := slices.Clone(in.Image.Env)
	for _, e := range in.Config.GetEnvs() {
		add = append(add, e.GetKey()+"="+string(e.GetValue()))
	}
	return MergeEnv(env, add)
}

// MergeEnv returns base with the variables of over set in it.
func MergeEnv(base, over []string) []string {
	env := slices.Clone(base)
	at := make(map[string]int, len(base)+len(over))
	for i, kv := range env {
		at[envKey(kv)] = i
	}
	for _, kv := range over {
		if i, ok := at[envKey(kv)]; ok {
			env[i] = kv
			continue
		}
		at[envKey(kv)] = len(env)
		env = append(env, kv)
	}
	return env
}

func envKey(kv string) string {
	key, _, _ := strings.Cut(kv, "=")
	return key
}
