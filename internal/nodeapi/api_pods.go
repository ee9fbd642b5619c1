package nodeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent"
)

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) error {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range s.cfg.Agent.Pods() {
		list.Items = append(list.Items, *p)
	}
	return answer(w, &list)
}

// describe tells all that is known of pods. Parameters: uid (repeated).
func (s *Server) describe(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return badRequest{err}
	}
	var uids []types.UID
	for _, uid := range r.Form["uid"] {
		uids = append(uids, types.UID(uid))
	}
	return answer(w, s.cfg.Agent.Describe(uids))
}

func (s *Server) apply(w http.ResponseWriter, r *http.Request) error {
	var o agent.Objects
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return badRequest{fmt.Errorf("cannot read what is asked for: %w", err)}
	}
	if !s.coming.begin() {
		panic(http.ErrAbortHandler) // for the client, the agent has left
	}
	defer s.coming.end()
	refs, err := s.cfg.Agent.Apply(r.Context(), o)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		s.runs.follow(r.FormValue("run"), ref.UID)
	}
	return answer(w, refs)
}

func (s *Server) told(w http.ResponseWriter, r *http.Request) error {
	var uids []types.UID
	if err := json.NewDecoder(r.Body).Decode(&uids); err != nil {
		return badRequest{fmt.Errorf("cannot read which pods' ends were told: %w", err)}
	}
	s.cfg.Agent.Told(uids)
	return answer(w, struct{}{})
}

// grace reads the parameter of that name, in seconds.
func grace(r *http.Request) (*int64, error) {
	text := r.FormValue("grace")
	if text == "" {
		return nil, nil //nolint:nilnil // nil means the pod's own
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, badRequest{fmt.Errorf("grace is %q, want seconds", text)}
	}
	return &n, nil
}

func (s *Server) stopPod(w http.ResponseWriter, r *http.Request) error {
	g, err := grace(r)
	if err != nil {
		return err
	}
	ref, err := s.cfg.Agent.Stop(r.PathValue("namespace"), r.PathValue("pod"), g)
	if err != nil {
		return err
	}
	return answer(w, ref)
}

// deletePod ends the pod of that name, or that with the uid if one is given. When
// a run asks, it follows the pod no more, and the pod goes on if another does. With
// waited, a duration, the pod stays listed: the run has given up, and why says what
// it waited for.
func (s *Server) deletePod(w http.ResponseWriter, r *http.Request) error {
	g, err := grace(r)
	if err != nil {
		return err
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	if uid := types.UID(r.FormValue("uid")); uid != "" {
		if run := r.FormValue("run"); run != "" {
			awaitRuns(r.Context(), s.began)
			if s.runs.release(run, uid) {
				return fmt.Errorf("%w: %s/%s", errFollowed, namespace, name)
			}
			// The run may not have heard of it yet; what has ended stays listed.
			if s.hasEnded(uid) {
				return fmt.Errorf("%w: %s/%s", errEnded, namespace, name)
			}
		}
		end := func() bool { return s.cfg.Agent.DeleteUID(uid, g) }
		if text := r.FormValue("waited"); text != "" {
			waited, err := time.ParseDuration(text)
			if err != nil {
				return badRequest{fmt.Errorf("waited is %q, want a time such as 90s", text)}
			}
			end = func() bool { return s.cfg.Agent.TimeOut(uid, waited, r.FormValue("why"), g) }
		}
		if !end() {
			return fmt.Errorf("%w: %s/%s with uid %s", agent.ErrNoPod, namespace, name, uid)
		}
		return answer(w, agent.Ref{Namespace: namespace, Name: name, UID: uid})
	}
	ref, err := s.cfg.Agent.Delete(namespace, name, g)
	if err != nil {
		return err
	}
	return answer(w, ref)
}

func (s *Server) hasEnded(uid types.UID) bool {
	return slices.ContainsFunc(s.cfg.Agent.Pods(), func(p *corev1.Pod) bool {
		return p.UID == uid && p.DeletionTimestamp == nil && terminal(&p.Status)
	})
}

// watch sends updates, one JSON object a line: those that make up the present
// state first. An empty line says that the sending has begun. While a run watches,
// it follows the pods that it names here and those that it applies.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	if run := r.FormValue("run"); run != "" {
		defer s.runs.begin(run)()
		for _, uid := range r.Form["uid"] {
			s.runs.follow(run, types.UID(uid))
		}
	}
	out := newStream(w)
	if err := out.begin(); err != nil {
		return err
	}
	return s.cfg.Agent.Watch(r.Context(), func(u agent.Update, lost int) error {
		if err := out.send(watched{Update: u, Lost: lost}); err != nil {
			return err
		}
		return out.flush()
	})
}

// watched is a line of a watch.
type watched struct {
	agent.Update
	Lost int `json:"lost,omitempty"` // updates before this one that were dropped
}

// stream sends JSON objects, one a line. It is safe for concurrent use.
type stream struct {
	mu  sync.Mutex
	w   http.ResponseWriter
	enc *json.Encoder
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, enc: json.NewEncoder(w)}
}

func (s *stream) begin() error {
	s.w.Header().Set("Content-Type", "application/x-ndjson")
	return s.flush()
}

func (s *stream) send(v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enc.Encode(v)
}

func (s *stream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return http.NewResponseController(s.w).Flush()
}
