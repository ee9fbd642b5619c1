package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	hostResolvConf = "/etc/resolv.conf"
	hostHosts      = "/etc/hosts"
	hostShm        = "/dev/shm"
	// shmSize is what containerd and Docker give, in bytes.
	shmSize = 64 << 20
)

func (s *Service) resolvConfPath(id string) string {
	return filepath.Join(s.sandboxDir(id), "resolv.conf")
}
func (s *Service) hostnamePath(id string) string { return filepath.Join(s.sandboxDir(id), "hostname") }
func (s *Service) hostsPath(id string) string    { return filepath.Join(s.sandboxDir(id), "hosts") }
func (s *Service) shmPath(id string) string      { return filepath.Join(s.sandboxDir(id), "shm") }

// writeSandboxFiles writes the files that every container of the sandbox sees
// unless its own mounts say otherwise.
func (s *Service) writeSandboxFiles(sb *sandbox) error {
	if err := os.MkdirAll(s.sandboxDir(sb.id), 0o711); err != nil {
		return err
	}
	resolv, err := resolvConf(sb.config.GetDnsConfig())
	if err != nil {
		return err
	}
	hosts, err := os.ReadFile(hostHosts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name, err := hostname(sb.config)
	if err != nil {
		return err
	}
	owner := sb.rootOnHost()
	for path, content := range map[string][]byte{
		s.resolvConfPath(sb.id): resolv,
		s.hostsPath(sb.id):      hosts,
		s.hostnamePath(sb.id):   []byte(name + "\n"),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		if owner != 0 {
			if err := os.Chown(path, owner, owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// rootOnHost is the id that root of the sandbox has outside.
func (sb *sandbox) rootOnHost() int {
	if uids, _, ok := sb.userNamespace(); ok {
		return int(uids[0].GetHostId())
	}
	return 0
}

// hostname is the sandbox's, or the machine's if it names none.
func hostname(config *runtimeapi.PodSandboxConfig) (string, error) {
	if h := config.GetHostname(); h != "" {
		return h, nil
	}
	return os.Hostname()
}

// resolvConf renders the DNS configuration; without one it is the host's.
func resolvConf(dns *runtimeapi.DNSConfig) ([]byte, error) {
	if len(dns.GetServers())+len(dns.GetSearches())+len(dns.GetOptions()) == 0 {
		raw, err := os.ReadFile(hostResolvConf)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return raw, err
	}
	var b bytes.Buffer
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.Bytes(), nil
}

// mountShm gives the sandbox one /dev/shm for all of its containers.
func (s *Service) mountShm(sb *sandbox) error {
	if sb.hostIPC() {
		return nil
	}
	path := s.shmPath(sb.id)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	root := sb.rootOnHost()
	data := fmt.Sprintf("mode=1777,size=%d,uid=%d,gid=%d", shmSize, root, root)
	return unix.Mount("shm", path, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, data)
}
