package nodeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/util/proxy"

	"github.com/berth-run/berth/internal/agent"
)

// exec, attach and portForward pass the connection on to the runtime's streaming
// server, as the kubelet does: it speaks SPDY and WebSocket.

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	req, err := streamRequest(r)
	if err != nil {
		return err
	}
	if len(req.Command) == 0 {
		return badRequest{fmt.Errorf("no command is given")}
	}
	target, err := s.cfg.Agent.Exec(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), req)
	if err != nil {
		return err
	}
	forward(w, r, target)
	return nil
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	req, err := streamRequest(r)
	if err != nil {
		return err
	}
	target, err := s.cfg.Agent.Attach(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), req)
	if err != nil {
		return err
	}
	forward(w, r, target)
	return nil
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return badRequest{err}
	}
	var ports []int32
	for _, name := range []string{"port", "ports"} {
		for _, text := range r.Form[name] {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil || n == 0 {
				return badRequest{fmt.Errorf("port %q is not one of 1–65535", text)}
			}
			ports = append(ports, int32(n)) //nolint:gosec // 16 bits
		}
	}
	target, err := s.cfg.Agent.PortForward(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), ports)
	if err != nil {
		return err
	}
	forward(w, r, target)
	return nil
}

// streamRequest reads the parameters: the kubelet's names, and those of the API
// server.
func streamRequest(r *http.Request) (agent.StreamRequest, error) {
	if err := r.ParseForm(); err != nil {
		return agent.StreamRequest{}, badRequest{err}
	}
	flag := func(names ...string) bool {
		for _, n := range names {
			if v, _ := strconv.ParseBool(r.Form.Get(n)); v {
				return true
			}
		}
		return false
	}
	req := agent.StreamRequest{
		Command: r.Form["command"],
		Stdin:   flag("input", "stdin"), Stdout: flag("output", "stdout"), Stderr: flag("error", "stderr"),
		TTY: flag("tty"),
	}
	if !req.Stdin && !req.Stdout && !req.Stderr {
		return req, badRequest{fmt.Errorf("ask for at least one of input, output and error")}
	}
	if req.TTY {
		req.Stderr = false // a terminal has one output
	}
	return req, nil
}

func forward(w http.ResponseWriter, r *http.Request, target *url.URL) {
	proxy.NewUpgradeAwareHandler(target, nil, false, true, responder{}).ServeHTTP(w, r)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}
