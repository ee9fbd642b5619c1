package podconfig

import (
	"fmt"
	"maps"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox returns the config of the pod's sandbox.
func Sandbox(pod *corev1.Pod, f Facts) (*runtimeapi.PodSandboxConfig, error) {
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers && f.UserNamespace == nil {
		return nil, sandboxFailed("hostUsers is false and the node has no user namespace range for it; leave hostUsers out or give the node a range")
	}
	security, err := sandboxSecurity(pod, f)
	if err != nil {
		return nil, err
	}
	hostname := ""
	if !pod.Spec.HostNetwork {
		if hostname, err = kernelHostname(pod, f.ClusterDomain); err != nil {
			return nil, err
		}
	}
	dns, _ := DNS(pod, f)
	resources, overhead := sandboxResources(pod, f)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      pod.Name,
			Namespace: pod.Namespace,
			Uid:       string(pod.UID),
			Attempt:   uint32(f.Attempt),
		},
		Hostname:     hostname,
		LogDirectory: LogDirectory(pod, f.LogRoot),
		DnsConfig:    dns,
		PortMappings: portMappings(pod),
		Labels:       sandboxLabels(pod),
		Annotations:  maps.Clone(pod.Annotations), // the caller may add its own
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    f.CgroupParent,
			SecurityContext: security,
			Sysctls:         sysctls(pod),
			Resources:       resources,
			Overhead:        overhead,
		},
	}, nil
}

// Warning is what an event says of a wish that is not followed to the letter.
type Warning struct{ Reason, Message string }

// SandboxWarnings says what of the pod's wishes its sandbox cannot follow to the
// letter.
func SandboxWarnings(pod *corev1.Pod, f Facts) []Warning {
	var all []Warning
	_, cut := DNS(pod, f)
	for _, c := range cut {
		all = append(all, Warning{"DNSConfigForming", c})
	}
	if host, _, err := Hostname(pod, f.ClusterDomain); err == nil && !pod.Spec.HostNetwork {
		if pod.Spec.Hostname == "" && pod.Spec.HostnameOverride == nil && len(pod.Name) > len(host) {
			all = append(all, Warning{"HostnameTruncated", fmt.Sprintf("the host name is cut to %d characters: %s", maxHostnameBytes, host)})
		}
	}
	return all
}

// LogDirectory is the folder of all logs of the pod; a container's log is in
// it at LogPath.
func LogDirectory(pod *corev1.Pod, logRoot string) string {
	return path.Join(logRoot, strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_"))
}

// LogPath is where a container's log is, below LogDirectory.
func LogPath(container string, attempt int) string {
	return path.Join(container, fmt.Sprintf("%d.log", attempt))
}

func sandboxSecurity(pod *corev1.Pod, f Facts) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	s := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, f),
		Privileged:       anyPrivileged(pod),
		// The sandbox itself runs no program of the pod: the tight profile
		// always fits (kubernetes#84623).
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return s, nil
	}
	var err error
	if s.SupplementalGroupsPolicy, err = groupsPolicy(sc); err != nil {
		return nil, sandboxFailed(err.Error())
	}
	s.RunAsUser = int64Value(sc.RunAsUser)
	s.RunAsGroup = int64Value(sc.RunAsGroup)
	s.SupplementalGroups = groups(sc)
	s.SelinuxOptions = selinux(sc.SELinuxOptions)
	return s, nil
}

func sysctls(pod *corev1.Pod) map[string]string {
	all := map[string]string{}
	if sc := pod.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			all[s.Name] = s.Value
		}
	}
	return all
}

// portMappings lists the ports of containers and sidecars, each once. The
// kubelet leaves sidecars out; they live as long as the pod does, so that there
// is no reason for their host ports not to work.
func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	var all []*runtimeapi.PortMapping
	seen := map[string]bool{}
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			key := fmt.Sprintf("%s/%s/%d/%d", p.Protocol, p.HostIP, p.HostPort, p.ContainerPort)
			if seen[key] {
				continue
			}
			seen[key] = true
			all = append(all, &runtimeapi.PortMapping{
				Protocol:      protocol(p.Protocol),
				ContainerPort: p.ContainerPort,
				HostPort:      p.HostPort,
				HostIp:        p.HostIP,
			})
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; isSidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return all
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	case corev1.ProtocolTCP:
	}
	return runtimeapi.Protocol_TCP
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
