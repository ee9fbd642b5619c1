package cri

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/network"
	"github.com/berth-run/berth/internal/cri/store"
)

// RunPodSandbox makes a sandbox and returns its id. If it fails, nothing is
// left of it.
func (s *Service) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	h, err := s.handler(handler)
	if err != nil {
		return "", err
	}
	if err := validateSandbox(config); err != nil {
		return "", err
	}
	config = proto.CloneOf(config)
	sb := newSandbox(store.Sandbox{
		ID:        newID(),
		Handler:   handler,
		CreatedAt: time.Now(),
		State:     store.SandboxMaking,
	})
	sb.config, sb.rec.Config.P = config, config
	if _, _, ok := sb.userNamespace(); ok && !h.features.UserNamespaces {
		return "", coded(codes.InvalidArgument, "the runtime handler %q has no user namespaces", handler)
	}

	name := sandboxName(config.GetMetadata())
	if err := s.reserve(name, sb.id); err != nil {
		return "", err
	}
	release, err := sb.turn.take(ctx)
	if err != nil {
		s.unreserve(name, sb.id)
		return "", err
	}
	defer release()
	if err := s.do(ctx, s.sandboxSteps(sb)); err != nil {
		s.unreserve(name, sb.id)
		return "", fmt.Errorf("cannot run sandbox of pod %s/%s: %w", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), err)
	}
	s.log.Debug("sandbox is ready", "id", sb.id, "took", time.Since(sb.rec.CreatedAt))
	s.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, sb.id, sb.id)
	s.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, sb.id, sb.id)
	return sb.id, nil
}

func validateSandbox(config *runtimeapi.PodSandboxConfig) error {
	m := config.GetMetadata()
	if m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" {
		return coded(codes.InvalidArgument, "cannot run sandbox: its metadata needs name, namespace and uid, got %v", m)
	}
	if err := validateUserNamespace(config.GetLinux().GetSecurityContext().GetNamespaceOptions()); err != nil {
		return err
	}
	return validateSysctls(config)
}

func validateUserNamespace(ns *runtimeapi.NamespaceOption) error {
	u := ns.GetUsernsOptions()
	switch {
	case u == nil, u.GetMode() == runtimeapi.NamespaceMode_NODE:
		return nil
	case u.GetMode() != runtimeapi.NamespaceMode_POD:
		return coded(codes.InvalidArgument, "user namespace mode %v is not supported: want POD or NODE", u.GetMode())
	case len(u.GetUids()) != 1 || len(u.GetGids()) != 1 || !proto.Equal(u.GetUids()[0], u.GetGids()[0]):
		return coded(codes.InvalidArgument, "a user namespace needs one mapping of uids and the same one of gids")
	case u.GetUids()[0].GetContainerId() != 0 || u.GetUids()[0].GetLength() == 0:
		return coded(codes.InvalidArgument, "a user namespace needs a mapping that begins with id 0 in it, got %v", u.GetUids()[0])
	case ns.GetPid() == runtimeapi.NamespaceMode_NODE || ns.GetIpc() == runtimeapi.NamespaceMode_NODE:
		return coded(codes.InvalidArgument, "a sandbox with a user namespace can't use the host's pid or ipc namespace")
	}
	return nil
}

// sandboxSteps are the parts of a sandbox, in the order they are made. The
// kept ones stay until the sandbox is removed, the live ones go when it stops.
func (s *Service) sandboxSteps(sb *sandbox) []step {
	return append(s.sandboxKeptSteps(sb), s.sandboxLiveSteps(sb)...)
}

func (s *Service) sandboxKeptSteps(sb *sandbox) []step {
	return []step{
		{
			name: "remember the sandbox",
			do: func(context.Context) error {
				s.mu.Lock()
				s.sandboxes[sb.id] = sb
				s.mu.Unlock()
				return nil
			},
			undo: func(context.Context) error { return s.forgetSandbox(sb) },
		},
		{
			name: "write the sandbox's files",
			do:   func(context.Context) error { return s.writeSandboxFiles(sb) },
			undo: func(context.Context) error { return os.RemoveAll(s.sandboxDir(sb.id)) },
		},
	}
}

func (s *Service) sandboxLiveSteps(sb *sandbox) []step {
	steps := []step{
		{
			name: "make the sandbox's namespaces",
			do:   func(context.Context) error { return s.makeNamespaces(sb) },
			undo: func(context.Context) error { return unpin(s.namespaceDir(sb.id)) },
		},
		{
			name: "mount the sandbox's /dev/shm",
			do:   func(context.Context) error { return s.mountShm(sb) },
			undo: func(context.Context) error { return unmount(s.shmPath(sb.id)) },
		},
		{
			name: "connect the sandbox",
			do:   func(ctx context.Context) error { return s.connect(ctx, sb) },
			undo: func(ctx context.Context) error { return s.cfg.Network.Teardown(ctx, sb.id) },
		},
		{
			name: "set the sandbox's sysctls", // after the network: they may name its interface
			do:   func(context.Context) error { return s.applySysctls(sb) },
		},
		{
			name: "start the pause process",
			do:   func(ctx context.Context) error { return s.startPause(ctx, sb) },
			undo: func(ctx context.Context) error { return s.endPause(ctx, sb) },
		},
		{
			name: "record that the sandbox is ready",
			do: func(context.Context) error {
				return s.changeSandbox(sb, func(r *store.Sandbox) { r.State = store.SandboxReady })
			},
		},
	}
	return steps
}

// connect gives the sandbox its network. With the host's there is nothing to do.
func (s *Service) connect(ctx context.Context, sb *sandbox) error {
	if sb.hostNetwork() {
		return nil
	}
	ports, err := portMappings(sb.config.GetPortMappings())
	if err != nil {
		return err
	}
	m := sb.config.GetMetadata()
	result, err := s.cfg.Network.Setup(ctx, network.Request{
		ID: sb.id, Name: m.GetNamespace() + "/" + m.GetName(), NetNS: s.pinPath(sb.id, nsNet), Ports: ports,
		Pod: podOf(sb.config),
	})
	if err != nil {
		return err
	}
	return s.changeSandbox(sb, func(r *store.Sandbox) {
		r.IPs = nil
		for _, ip := range result.IPs {
			r.IPs = append(r.IPs, ip.String())
		}
	})
}

// podOf is what network plugins may be told.
func podOf(config *runtimeapi.PodSandboxConfig) network.Pod {
	m, dns := config.GetMetadata(), config.GetDnsConfig()
	return network.Pod{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(),
		Annotations: config.GetAnnotations(), Cgroup: config.GetLinux().GetCgroupParent(),
		DNS: network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()},
	}
}

// portMappings leaves out ports that the host does not open.
func portMappings(list []*runtimeapi.PortMapping) ([]network.PortMapping, error) {
	var out []network.PortMapping
	for _, p := range list {
		if p.GetHostPort() <= 0 {
			continue
		}
		m := network.PortMapping{
			HostPort:      uint16(p.GetHostPort()),
			ContainerPort: uint16(p.GetContainerPort()),
			Proto:         protocol(p.GetProtocol()),
		}
		if p.GetHostIp() != "" {
			ip, err := netip.ParseAddr(p.GetHostIp())
			if err != nil {
				return nil, fmt.Errorf("cannot open host port %d: host IP: %w", p.GetHostPort(), err)
			}
			m.HostIP = ip
		}
		out = append(out, m)
	}
	return out, nil
}

func protocol(p runtimeapi.Protocol) network.Protocol {
	switch p {
	case runtimeapi.Protocol_UDP:
		return network.UDP
	case runtimeapi.Protocol_SCTP:
		return network.SCTP
	default:
		return network.TCP
	}
}
