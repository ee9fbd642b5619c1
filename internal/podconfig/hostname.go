package podconfig

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The kernel's node name holds 64 bytes; a DNS label holds 63.
const (
	maxHostnameBytes = 63
	maxFQDNBytes     = 64
)

// Hostname returns the pod's short host name and, with a subdomain, the domain
// it stands in. A name that is too long is cut, as the kubelet does.
func Hostname(pod *corev1.Pod, clusterDomain string) (host, domain string, err error) {
	spec := &pod.Spec
	if override := spec.HostnameOverride; override != nil {
		if msgs := validation.IsDNS1123Subdomain(*override); len(msgs) > 0 {
			return "", "", sandboxFailed(fmt.Sprintf("spec.hostnameOverride %q is no DNS name: %s", *override, strings.Join(msgs, "; ")))
		}
		return cutHostname(*override), "", nil
	}
	host = pod.Name
	if spec.Hostname != "" {
		if msgs := validation.IsDNS1123Label(spec.Hostname); len(msgs) > 0 {
			return "", "", sandboxFailed(fmt.Sprintf("spec.hostname %q is no DNS label: %s", spec.Hostname, strings.Join(msgs, "; ")))
		}
		host = spec.Hostname
	}
	if spec.Subdomain != "" {
		if msgs := validation.IsDNS1123Label(spec.Subdomain); len(msgs) > 0 {
			return "", "", sandboxFailed(fmt.Sprintf("spec.subdomain %q is no DNS label: %s", spec.Subdomain, strings.Join(msgs, "; ")))
		}
		domain = spec.Subdomain + "." + pod.Namespace + ".svc." + clusterDomain
		domain = strings.TrimSuffix(domain, ".") // no cluster domain: a machine of its own
	}
	return cutHostname(host), domain, nil
}

func cutHostname(host string) string {
	if len(host) <= maxHostnameBytes {
		return host
	}
	return strings.TrimRight(host[:maxHostnameBytes], "-.")
}

// kernelHostname is what uname says in the pod: the short name, or the whole
// one where the pod asks for it.
func kernelHostname(pod *corev1.Pod, clusterDomain string) (string, error) {
	host, domain, err := Hostname(pod, clusterDomain)
	if err != nil {
		return "", err
	}
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return host, nil
	}
	fqdn := host + "." + domain
	if len(fqdn) > maxFQDNBytes {
		return "", sandboxFailed(fmt.Sprintf(
			"host name %q has %d characters and setHostnameAsFQDN allows %d; use a shorter hostname or subdomain, or leave setHostnameAsFQDN out",
			fqdn, len(fqdn), maxFQDNBytes))
	}
	return fqdn, nil
}

// HostsFile returns the pod's /etc/hosts: the node's own on the host network, a
// new one with the pod's addresses otherwise, and its hostAliases.
func HostsFile(pod *corev1.Pod, podIPs []string, f Facts) ([]byte, error) {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(f.HostsFile)
		if n := len(f.HostsFile); n > 0 && f.HostsFile[n-1] != '\n' {
			b.WriteByte('\n')
		}
	} else {
		host, domain, err := Hostname(pod, f.ClusterDomain)
		if err != nil {
			return nil, err
		}
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		names := host
		if domain != "" {
			names = host + "." + domain + "\t" + host
		}
		for _, ip := range podIPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, names)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.Bytes(), nil
}
