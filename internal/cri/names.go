package cri

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// newID gives 64 hexadecimal digits, as other runtimes do.
func newID() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// sandboxName is unique among sandboxes: a pod has one for each attempt.
func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("sandbox/%s_%s_%s_%d", m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt())
}

// containerName is unique in its sandbox.
func containerName(sandboxID string, m *runtimeapi.ContainerMetadata) string {
	return fmt.Sprintf("container/%s/%s_%d", sandboxID, m.GetName(), m.GetAttempt())
}

// reserve gives name to id, or says who has it.
func (s *Service) reserve(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, taken := s.names[name]; taken && owner != id {
		return coded(codes.AlreadyExists, "the name %s is taken by %s", name, owner)
	}
	s.names[name] = id
	return nil
}

// unreserve frees name if id has it.
func (s *Service) unreserve(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[name] == id {
		delete(s.names, name)
	}
}

// find looks an object up by its id or by the beginning of one.
func find[T any](m map[string]T, id string) (v T, ok bool) {
	if v, ok = m[id]; ok || id == "" {
		return v, ok
	}
	matches := 0
	for full, candidate := range m {
		if strings.HasPrefix(full, id) {
			v, matches = candidate, matches+1
		}
	}
	if matches != 1 {
		var none T
		return none, false
	}
	return v, true
}

func (s *Service) sandbox(id string) (*sandbox, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sb, ok := find(s.sandboxes, id)
	if !ok {
		return nil, coded(codes.NotFound, "cannot find sandbox %q", id)
	}
	return sb, nil
}

func (s *Service) container(id string) (*container, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := find(s.containers, id)
	if !ok {
		return nil, coded(codes.NotFound, "cannot find container %q", id)
	}
	return c, nil
}

// isNotFound reports whether err came from sandbox or container.
func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }
