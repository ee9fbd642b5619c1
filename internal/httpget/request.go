// Package httpget carries out httpGet handlers, as probes and lifecycle hooks
// have them: it builds the request from the API's fields and sends it the way
// the kubelet does, without proxy, without verifying certificates, on a
// connection of its own that leaves no socket in TIME_WAIT behind.
//
// It keeps no state between requests and starts nothing that outlives one.
package httpget

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// apiVersion is the Kubernetes version whose behaviour is followed; servers and
// log filters know probes by "kube-probe/1.37".
const apiVersion = "1.37"

// UserAgent is what requests for purpose ("probe", "lifecycle") call themselves.
func UserAgent(purpose string) string { return "kube-" + purpose + "/" + apiVersion }

// Request builds the request of an httpGet handler. ip stands in for an empty
// host; named ports are looked up in container, which may be nil.
//
// A User-Agent or Accept among the handler's headers replaces ours, and an empty
// one removes it; a Host header says which virtual host is asked for.
func Request(action *corev1.HTTPGetAction, container *corev1.Container, ip, purpose string) (*http.Request, error) {
	port, err := Port(action.Port, container)
	if err != nil {
		return nil, err
	}
	host := action.Host
	if host == "" {
		host = ip
	}
	if host == "" {
		return nil, fmt.Errorf("cannot build request for path %q: the pod has no address yet", action.Path)
	}
	target, err := url.Parse(action.Path)
	if err != nil {
		// The API accepts any path; what is no URL is sent as it stands.
		target = &url.URL{Path: action.Path}
	}
	target.Scheme = strings.ToLower(string(action.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))

	req, err := http.NewRequest(http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot build request for %s: %w", target, err)
	}
	for _, h := range action.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, set := req.Header["User-Agent"]; !set {
		req.Header.Set("User-Agent", UserAgent(purpose))
	}
	if accept, set := req.Header["Accept"]; !set {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// Port resolves a port by number, by its name in container, or from digits in a
// string. container may be nil.
func Port(port intstr.IntOrString, container *corev1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		if n, ok := namedPort(port.StrVal, container); ok {
			number = n
		} else if _, err := strconv.Atoi(port.StrVal); err != nil {
			return 0, fmt.Errorf("cannot find port %q among the container's ports", port.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port %s is not a port; use 1–65535", port.String())
	}
	return number, nil
}

func namedPort(name string, container *corev1.Container) (int, bool) {
	if container == nil {
		return 0, false
	}
	for _, p := range container.Ports {
		if p.Name == name {
			return int(p.ContainerPort), true
		}
	}
	return 0, false
}
