package images

import (
	"net/http"
	"net/http/httptest"
	"strconv"
)

// FaultKind is a way to misbehave.
type FaultKind int

const (
	Truncate FaultKind = iota // announces all, sends half, cuts the connection
	Corrupt                   // sends all, with one byte changed
	Status                    // answers Fault.Code
	Stall                     // sends half, then nothing until Fault.Release is closed
)

// Fault is one misbehaviour. Leave Kind-specific fields zero where they don't
// apply.
type Fault struct {
	Kind      FaultKind
	Target    string        // "blobs" or "manifests"
	Reference string        // digest or tag; empty: any
	Times     int           // how often; 0: always
	Code      int           // for Status
	Release   chan struct{} // for Stall; nil: until the end of the registry
	Reached   chan struct{} // for Stall: closed, if not nil, when half is sent the first time

	used int // guarded by Registry.mu
}

// Misbehave adds a fault. Faults apply to GET requests; Status also to HEAD.
func (r *Registry) Misbehave(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, &f)
}

// Behave removes all faults.
func (r *Registry) Behave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

func (r *Registry) nextFault(method, kind, reference string) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.Target != kind || f.Reference != "" && f.Reference != reference || f.Times > 0 && f.used >= f.Times {
			continue
		}
		if method == http.MethodGet || method == http.MethodHead && f.Kind == Status {
			f.used++
			return f
		}
	}
	return nil
}

// misbehave answers a request wrongly.
func (r *Registry) misbehave(w http.ResponseWriter, req *http.Request, f *Fault) {
	if f.Kind == Status {
		http.Error(w, `{"errors":[{"code":"UNKNOWN","message":"fault of a test"}]}`, f.Code)
		return
	}
	answer := httptest.NewRecorder()
	r.store.ServeHTTP(answer, req)
	body := answer.Body.Bytes()
	for key, values := range answer.Header() {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	half := len(body) / 2
	if f.Kind == Corrupt && len(body) > 0 {
		body[half] ^= 0x55
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
		return
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body[:half])
	_ = http.NewResponseController(w).Flush()
	if f.Kind == Stall {
		r.stall(req, f)
		select {
		case <-f.Release:
			_, _ = w.Write(body[half:])
			return
		default:
		}
	}
	panic(http.ErrAbortHandler) // cuts the connection
}

// stall waits until the fault is released, the client or the registry is gone.
func (r *Registry) stall(req *http.Request, f *Fault) {
	r.mu.Lock()
	if f.Reached != nil && f.used == 1 {
		close(f.Reached)
	}
	r.mu.Unlock()
	select {
	case <-f.Release:
	case <-req.Context().Done():
	case <-r.ended:
	}
}
