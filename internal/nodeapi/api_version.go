package nodeapi

import (
	"errors"
	"net/http"
)

// Version says which agent answers.
type Version struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Root    string `json:"root"`
	CIDR    string `json:"cidr,omitempty"`    // ranges of the pods' addresses
	PodPids int64  `json:"podPids,omitempty"` // processes and threads that a pod may have; -1: no limit
	Trouble string `json:"trouble,omitempty"` // what keeps the agent from doing anything to containers
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	v := s.cfg.Info
	if err := s.cfg.Agent.Trouble(); err != nil {
		v.Trouble = err.Error()
	}
	return answer(w, v)
}

// leave asks the agent's process to end. Its pods run on. With the parameter idle it
// ends only if no pod lives and nobody awaits one.
func (s *Server) leave(w http.ResponseWriter, r *http.Request) error {
	if r.FormValue("idle") != "" && !s.leaveIdle() {
		return errNeeded
	}
	err := answer(w, struct{}{})
	// The answer must be out before the agent hangs up.
	err = errors.Join(err, http.NewResponseController(w).Flush())
	s.cfg.Leave()
	return err
}
