package podconfig

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits that every resolver keeps.
const (
	maxNameservers      = 3
	maxSearchPaths      = 32
	maxSearchChars      = 2048
	maxSearchEntryChars = 253
)

// DNS returns the resolver configuration of the pod, and in words what had to
// be left out of it.
func DNS(pod *corev1.Pod, f Facts) (*runtimeapi.DNSConfig, []string) {
	dns, lost := baseDNS(pod, f)
	if add := pod.Spec.DNSConfig; add != nil {
		dns.Servers = unique(append(dns.Servers, add.Nameservers...))
		dns.Searches = unique(append(dns.Searches, add.Searches...))
		for _, o := range add.Options {
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			dns.Options = setOption(dns.Options, option)
		}
	}
	cut := fitDNS(dns)
	if len(dns.Servers) == 0 && len(lost) > 0 {
		cut = append(cut, fmt.Sprintf("pods can't reach the node's name servers, so there is none: %s; name others in dnsConfig.nameservers", strings.Join(lost, " ")))
	}
	return dns, cut
}

// baseDNS is the configuration that the pod's dnsPolicy gives, always a new
// object, and which of the node's name servers it does without.
func baseDNS(pod *corev1.Pod, f Facts) (*runtimeapi.DNSConfig, []string) {
	host, lost := hostDNS(pod, f)
	switch pod.Spec.DNSPolicy {
	case corev1.DNSNone:
		return &runtimeapi.DNSConfig{}, nil
	case corev1.DNSDefault:
		return host, lost
	case corev1.DNSClusterFirst:
		if pod.Spec.HostNetwork {
			return host, lost
		}
	case corev1.DNSClusterFirstWithHostNet:
	}
	if len(f.ClusterDNS) == 0 {
		return host, lost
	}
	searches := host.Searches
	if d := f.ClusterDomain; d != "" {
		searches = unique(append([]string{pod.Namespace + ".svc." + d, "svc." + d, d}, searches...))
	}
	return &runtimeapi.DNSConfig{
		Servers:  slices.Clone(f.ClusterDNS),
		Searches: searches,
		Options:  []string{"ndots:5"},
	}, nil
}

// hostDNS is the node's configuration as far as the pod can use it: with a
// network of its own it reaches no server on the node's loopback. lost are those
// that it does without.
func hostDNS(pod *corev1.Pod, f Facts) (dns *runtimeapi.DNSConfig, lost []string) {
	of := func(d *runtimeapi.DNSConfig, servers []string) *runtimeapi.DNSConfig {
		return &runtimeapi.DNSConfig{Servers: servers, Searches: slices.Clone(d.GetSearches()), Options: slices.Clone(d.GetOptions())}
	}
	all := f.HostDNS.GetServers()
	if pod.Spec.HostNetwork {
		return of(f.HostDNS, slices.Clone(all)), nil
	}
	reachable := slices.DeleteFunc(slices.Clone(all), onlyOfHost)
	if behind := slices.DeleteFunc(slices.Clone(f.UpstreamDNS.GetServers()), onlyOfHost); len(reachable) == 0 && len(behind) > 0 {
		return of(f.UpstreamDNS, behind), nil
	}
	lost = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !onlyOfHost(s) })
	return of(f.HostDNS, reachable), lost
}

// onlyOfHost says whether a name server can be reached from the node itself
// only: it is on its loopback, or belongs to one of its links.
func onlyOfHost(server string) bool {
	addr, err := netip.ParseAddr(server)
	return err == nil && (addr.IsLoopback() || addr.Zone() != "")
}

// fitDNS cuts what resolvers would not take, and says what it cut.
func fitDNS(dns *runtimeapi.DNSConfig) (cut []string) {
	if n := len(dns.Servers); n > maxNameservers {
		cut = append(cut, fmt.Sprintf("%d name servers are given and resolvers use %d; left out: %s",
			n, maxNameservers, strings.Join(dns.Servers[maxNameservers:], " ")))
		dns.Servers = dns.Servers[:maxNameservers]
	}
	var fits, left []string
	chars := 0
	for _, s := range dns.Searches {
		longer := chars + len(s)
		if len(fits) > 0 {
			longer++ // the space between
		}
		if len(s) > maxSearchEntryChars || len(fits) == maxSearchPaths || longer > maxSearchChars {
			left = append(left, s)
			continue
		}
		fits, chars = append(fits, s), longer
	}
	if len(left) > 0 {
		cut = append(cut, fmt.Sprintf("resolvers use %d search domains of %d characters, %d in all; left out: %s",
			maxSearchPaths, maxSearchEntryChars, maxSearchChars, strings.Join(left, " ")))
		dns.Searches = fits
	}
	return cut
}

// ParseResolvConf reads the content of a resolv.conf. Lines it does not know
// are skipped, as resolvers do.
func ParseResolvConf(content []byte) *runtimeapi.DNSConfig {
	dns := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, fields[1])
		case "search": // the last line counts
			dns.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					dns.Searches = append(dns.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range fields[1:] {
				dns.Options = setOption(dns.Options, o)
			}
		}
	}
	return dns
}

// ResolvConf writes a resolv.conf.
func ResolvConf(dns *runtimeapi.DNSConfig) []byte {
	var b bytes.Buffer
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.Searches, " "))
	}
	for _, s := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.Options, " "))
	}
	return b.Bytes()
}

// setOption replaces the option of the same name, or adds it.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, have := range options {
		if haveName, _, _ := strings.Cut(have, ":"); haveName == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
