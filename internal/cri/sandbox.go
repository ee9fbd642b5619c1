package cri

import (
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/store"
)

// sandbox is one pod sandbox. What its configuration says never changes.
type sandbox struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	turn   turn // run, stop, remove

	cpu cpuRate // of the pod's cgroup, when it was last asked for

	saving  sync.Mutex // orders writes of the record's file; held for one write
	removed bool       // guarded by saving: the file is gone and stays so

	mu  sync.Mutex // guards rec
	rec store.Sandbox
}

func newSandbox(rec store.Sandbox) *sandbox {
	return &sandbox{id: rec.ID, config: rec.Config.P, turn: newTurn(), rec: rec}
}

func (sb *sandbox) record() store.Sandbox {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.rec
}

func (sb *sandbox) state() store.SandboxState { return sb.record().State }

// changeSandbox alters the record and writes it. One in the making is not
// written: what is left of it after a kill is found without (see sweep).
func (s *Service) changeSandbox(sb *sandbox, alter func(*store.Sandbox)) error {
	sb.saving.Lock()
	defer sb.saving.Unlock()
	sb.mu.Lock()
	alter(&sb.rec)
	rec := sb.rec
	sb.mu.Unlock()
	if rec.State == store.SandboxMaking || sb.removed {
		return nil
	}
	return s.store.PutSandbox(rec)
}

// forgetSandbox removes the record, for good: an end that is noticed later does not
// write it again.
func (s *Service) forgetSandbox(sb *sandbox) error {
	sb.saving.Lock()
	defer sb.saving.Unlock()
	sb.removed = true
	if err := s.store.DeleteSandbox(sb.id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, sb.id)
	return nil
}

func (sb *sandbox) namespaceOptions() *runtimeapi.NamespaceOption {
	return sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (sb *sandbox) hostNetwork() bool {
	return sb.namespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (sb *sandbox) hostIPC() bool {
	return sb.namespaceOptions().GetIpc() == runtimeapi.NamespaceMode_NODE
}

// sharesPID says whether the containers share a pid namespace, which needs a
// process to hold it.
func (sb *sandbox) sharesPID() bool {
	return sb.namespaceOptions().GetPid() == runtimeapi.NamespaceMode_POD
}

// userNamespace gives the id mappings, if the sandbox has a user namespace.
func (sb *sandbox) userNamespace() (uids, gids []*runtimeapi.IDMapping, ok bool) {
	u := sb.namespaceOptions().GetUsernsOptions()
	if u == nil || u.GetMode() != runtimeapi.NamespaceMode_POD {
		return nil, nil, false
	}
	return u.GetUids(), u.GetGids(), true
}

func (sb *sandbox) status() *runtimeapi.PodSandboxStatus {
	rec := sb.record()
	st := &runtimeapi.PodSandboxStatus{
		Id:        rec.ID,
		Metadata:  sb.config.GetMetadata(),
		State:     criSandboxState(rec.State),
		CreatedAt: rec.CreatedAt.UnixNano(),
		Network:   &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: sb.namespaceOptions()},
		},
		Labels:         sb.config.GetLabels(),
		Annotations:    sb.config.GetAnnotations(),
		RuntimeHandler: rec.Handler,
	}
	for i, ip := range rec.IPs {
		if i == 0 {
			st.Network.Ip = ip
			continue
		}
		st.Network.AdditionalIps = append(st.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return st
}

func criSandboxState(state store.SandboxState) runtimeapi.PodSandboxState {
	if state == store.SandboxReady {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// containersOf lists the containers of a sandbox, oldest first. Those still
// being made are left out.
func (s *Service) containersOf(sandboxID string) []*container {
	s.mu.RLock()
	var list []*container
	for _, c := range s.containers {
		if c.sandboxID == sandboxID {
			list = append(list, c)
		}
	}
	s.mu.RUnlock()
	return sortContainers(list)
}

func sortContainers(list []*container) []*container {
	list = slices.DeleteFunc(list, func(c *container) bool { return c.record().State == store.ContainerMaking })
	slices.SortFunc(list, func(a, b *container) int { return a.record().CreatedAt.Compare(b.record().CreatedAt) })
	return list
}
