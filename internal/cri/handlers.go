package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/shim"
)

// builtinHandler is the name, beside "", of the handler that needs no program: the
// shim's own libcontainer.
const builtinHandler = "berth"

// RuntimeHandler is a program that runs the containers of the sandboxes that ask
// for it by name.
type RuntimeHandler struct {
	Name   string   `json:"name"`
	Binary string   `json:"binary"`         // an OCI runtime; absolute path
	Args   []string `json:"args,omitempty"` // options that go before each of its commands
}

// ParseRuntimeHandler reads NAME=/path/of/binary[,OPTION[=VALUE]…], where the options
// are those of the binary, without the dashes.
func ParseRuntimeHandler(text string) (RuntimeHandler, error) {
	name, rest, named := strings.Cut(text, "=")
	if !named || rest == "" {
		return RuntimeHandler{}, fmt.Errorf("runtime handler %q: want NAME=/path/of/binary, with the binary's options behind commas, such as runc=/usr/sbin/runc,debug", text)
	}
	parts := strings.Split(rest, ",")
	h := RuntimeHandler{Name: name, Binary: parts[0]}
	for _, option := range parts[1:] {
		h.Args = append(h.Args, "--"+option)
	}
	return h, h.validate()
}

// String is the handler as ParseRuntimeHandler reads it.
func (h RuntimeHandler) String() string {
	text := h.Name + "=" + h.Binary
	for _, arg := range h.Args {
		text += "," + strings.TrimPrefix(arg, "--")
	}
	return text
}

// ownOptions are options of a binary that are not the user's to set, and why.
var ownOptions = map[string]string{
	"root":           "berth keeps each container's state apart",
	"log":            "berth reads it to know what went wrong",
	"log-format":     "berth reads the log",
	"systemd-cgroup": "berth names cgroups by their paths, as cgroupfs",
	"cgroup-manager": "berth names cgroups by their paths, as cgroupfs",
}

func (h RuntimeHandler) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("runtime handler %q: %s", h.String(), fmt.Sprintf(format, args...))
	}
	if problems := validation.IsDNS1123Label(h.Name); len(problems) > 0 {
		return bad("the name %q is none of a RuntimeClass's handler: %s", h.Name, problems[0])
	}
	if h.Name == builtinHandler {
		return bad("the name %q is that of the built-in one; choose another", h.Name)
	}
	if !filepath.IsAbs(h.Binary) {
		return bad("%q is not an absolute path", h.Binary)
	}
	for _, arg := range h.Args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if why := ownOptions[name]; why != "" {
			return bad("the option %q can't be set: %s", name, why)
		}
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(arg, " \t\n") {
			return bad("%q is no option; write it without dashes, such as debug or platform=kvm", strings.TrimPrefix(arg, "--"))
		}
	}
	switch info, err := os.Stat(h.Binary); {
	case err != nil:
		return bad("%v", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return bad("%s is not a program", h.Binary)
	}
	return nil
}

// Check says why the handler can't be used, by trying.
func (h RuntimeHandler) Check() error {
	if err := h.validate(); err != nil {
		return err
	}
	_, err := h.inspect()
	return err
}

// CheckRuntimeHandlers returns all that is wrong with handlers.
func CheckRuntimeHandlers(list []RuntimeHandler) error {
	var errs []error
	seen := make(map[string]string)
	for _, h := range list {
		if err := h.validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if other := seen[h.Name]; other != "" {
			errs = append(errs, fmt.Errorf("runtime handler %q: there is another one of that name, %q", h.String(), other))
		}
		seen[h.Name] = h.String()
	}
	return errors.Join(errs...)
}

// handler is what runs the containers of a sandbox.
type handler struct {
	program *shim.Program // nil: libcontainer in the shim
	// version is that of the OCI's specification to write; empty: the newest known.
	version  string
	features *runtimeapi.RuntimeHandlerFeatures
}

// oldVersion is what a program is given that is too old to tell its features: some
// of those refuse newer ones.
const oldVersion = "1.0.0"

// inspectWait is how long a program may take to say what it can do.
const inspectWait = 10 * time.Second

// inspectHandlers looks at the programs, and adds what is built in.
func inspectHandlers(list []RuntimeHandler) (map[string]handler, error) {
	builtin := handler{features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}}
	handlers := map[string]handler{"": builtin, builtinHandler: builtin}
	err := CheckRuntimeHandlers(list)
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		found, ierr := h.inspect()
		err = errors.Join(err, ierr)
		handlers[h.Name] = found
	}
	return handlers, err
}

// inspect asks the program for its features. One that is too old to tell has none
// of those that a caller must know of.
func (h RuntimeHandler) inspect() (handler, error) {
	ctx, cancel := context.WithTimeout(context.Background(), inspectWait)
	defer cancel()
	program := runc.Runc{Command: h.Binary, ExtraArgs: h.Args}
	found := handler{program: &shim.Program{Path: h.Binary, Args: h.Args}, features: &runtimeapi.RuntimeHandlerFeatures{}}
	if told, err := program.Features(ctx); err == nil {
		found.features = handlerFeatures(told)
		return found, nil
	}
	found.version = oldVersion
	if _, err := program.Version(ctx); err != nil {
		return handler{}, fmt.Errorf("runtime handler %q: cannot run the program: %w", h.String(), err)
	}
	return found, nil
}

func handlerFeatures(f *features.Features) *runtimeapi.RuntimeHandlerFeatures {
	r := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: slices.Contains(f.MountOptions, "rro")}
	if l := f.Linux; l != nil && l.MountExtensions != nil && l.MountExtensions.IDMap != nil {
		// Volumes of such pods are id-mapped mounts.
		idmap := l.MountExtensions.IDMap.Enabled
		r.UserNamespaces = slices.Contains(l.Namespaces, string(specs.UserNamespace)) && idmap != nil && *idmap
	}
	return r
}

// handler finds what runs the containers of a sandbox that asked for name.
func (s *Service) handler(name string) (handler, error) {
	h, ok := s.handlers[name]
	if !ok {
		return h, coded(codes.InvalidArgument, "no runtime for %q is configured; there is %s", name, strings.Join(slices.Sorted(maps.Keys(s.handlers))[1:], ", "))
	}
	return h, nil
}

// runtimeHandlers lists the handlers for Status.
func (s *Service) runtimeHandlers() (list []*runtimeapi.RuntimeHandler) {
	for _, name := range slices.Sorted(maps.Keys(s.handlers)) {
		list = append(list, &runtimeapi.RuntimeHandler{Name: name, Features: s.handlers[name].features})
	}
	return list
}

// fits says what a container asks for that its handler can't do.
func (h handler) fits(name string, config *runtimeapi.ContainerConfig) error {
	for _, m := range config.GetMounts() {
		if m.GetRecursiveReadOnly() && !h.features.RecursiveReadOnlyMounts {
			return coded(codes.InvalidArgument, "the runtime handler %q can't mount %s recursively read-only", name, m.GetContainerPath())
		}
	}
	return nil
}
