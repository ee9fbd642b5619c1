package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// server is what serve and grpc-health answer from. Safe for concurrent use.
type server struct {
	p           *program
	ready, live atomic.Bool
	service     string        // gRPC service name it knows besides ""
	serving     atomic.Int32  // gRPC health status; healthAuto: as ready says
	logRequests bool          // print a line for each request
	exit        chan exitCode // asked for by /exit; has room for one
	termDelay   time.Duration // goes on serving so long after SIGTERM
	tls         bool
	host        string
	port        int
	readyAfter  time.Duration
}

// define adds the flags that all servers share.
func (s *server) define(fs *flag.FlagSet, port int) {
	fs.IntVar(&s.port, "port", port, "")
	fs.StringVar(&s.host, "host", "", "")
	fs.BoolVar(&s.tls, "tls", false, "")
	fs.BoolVar(&s.logRequests, "log", false, "")
	fs.Var((*duration)(&s.readyAfter), "ready-after", "")
	fs.Var((*duration)(&s.termDelay), "term-delay", "")
}

func newServer(p *program) *server {
	s := &server{p: p, exit: make(chan exitCode, 1)}
	s.live.Store(true)
	s.serving.Store(healthAuto)
	return s
}

func serve(p *program, args []string) error {
	s := newServer(p)
	rest, err := parse(args, func(fs *flag.FlagSet) { s.define(fs, 8080) })
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return usageError{fmt.Sprintf("what is %q?", rest[0])}
	}
	return s.run()
}

func slowStart(p *program, args []string) error {
	if len(args) == 0 {
		return usageError{"want a duration"}
	}
	d, err := parseDuration(args[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "starting in %v\n", d)
	if p.wait(d) {
		return terminated
	}
	return serve(p, args[1:])
}

// run serves until SIGTERM or /exit. HTTP/1.1 and HTTP/2 are both spoken, with
// and without TLS.
func (s *server) run() error {
	listener, err := net.Listen("tcp", net.JoinHostPort(s.host, strconv.Itoa(s.port)))
	if err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: s.handler(), Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	scheme := "http"
	if s.tls {
		scheme = "https"
		certificate, err := selfSigned()
		if err != nil {
			return err
		}
		h.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	}
	if s.readyAfter > 0 {
		time.AfterFunc(s.readyAfter, func() { s.ready.Store(true) })
	} else {
		s.ready.Store(true)
	}
	name, _ := os.Hostname()
	fmt.Fprintf(s.p.out, "serving %s on %s (host %s, pid %d)\n", scheme, listener.Addr(), name, os.Getpid())

	ended := make(chan error, 1)
	go func() {
		if s.tls {
			ended <- h.ServeTLS(listener, "", "")
		} else {
			ended <- h.Serve(listener)
		}
	}()
	var code error
	select {
	case err := <-ended:
		return err
	case c := <-s.exit:
		time.Sleep(50 * time.Millisecond) // so that the answer gets out
		if c != 0 {
			code = c
		}
	case <-s.p.term:
		s.ready.Store(false)
		fmt.Fprintln(s.p.out, "SIGTERM, stopping")
		time.Sleep(s.termDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		err = errors.Join(err, h.Close())
		fmt.Fprintln(s.p.err, "some requests were cut off:", err)
	}
	<-ended
	return code
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.greet)
	mux.HandleFunc("/healthz", s.switched(&s.live, "live"))
	mux.HandleFunc("/livez", s.switched(&s.live, "live"))
	mux.HandleFunc("/readyz", s.switched(&s.ready, "ready"))
	mux.HandleFunc("/env", answerEnv)
	mux.HandleFunc("/hostname", answerHostname)
	mux.HandleFunc("/headers", answerHeaders)
	mux.HandleFunc("/delay", answerLate)
	mux.HandleFunc("/redirect", redirect)
	mux.HandleFunc("/status", answerStatus)
	mux.HandleFunc("/body", answerBody)
	mux.HandleFunc("/exit", s.answerExit)
	mux.HandleFunc(healthCheckPath, s.checkHealth)
	mux.HandleFunc(healthWatchPath, unimplemented)
	mux.HandleFunc("/serving", s.setServing)
	if !s.logRequests {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(s.p.out, "%s %s from %s\n", r.Method, r.URL, r.RemoteAddr)
		mux.ServeHTTP(w, r)
	})
}

func (s *server) greet(w http.ResponseWriter, r *http.Request) {
	name, _ := os.Hostname()
	fmt.Fprintf(w, "hello from %s over %s\n", name, r.Proto)
}

// switched answers 200 or 503, as a POST with ?NAME=true or false last said.
func (s *server) switched(state *atomic.Bool, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost || r.Method == http.MethodPut {
			value, err := strconv.ParseBool(r.URL.Query().Get(name))
			if err != nil {
				http.Error(w, "want ?"+name+"=true or false", http.StatusBadRequest)
				return
			}
			state.Store(value)
			fmt.Fprintf(w, "%s=%t\n", name, value)
			return
		}
		if !state.Load() {
			http.Error(w, "not "+name, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

func answerEnv(w http.ResponseWriter, r *http.Request) {
	if name := r.URL.Query().Get("name"); name != "" {
		value, ok := os.LookupEnv(name)
		if !ok {
			http.Error(w, "not set", http.StatusNotFound)
			return
		}
		fmt.Fprintln(w, value)
		return
	}
	for _, kv := range sortedEnv() {
		fmt.Fprintln(w, kv)
	}
}

func answerHostname(w http.ResponseWriter, _ *http.Request) {
	name, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, name)
}

func answerHeaders(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.URL, r.Proto, r.Host)
	_ = r.Header.Write(w)
}

// number reads a query parameter; it answers the request itself if that is no
// number from 0 to limit.
func number(w http.ResponseWriter, r *http.Request, name string, fallback, limit int) (n int, ok bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > limit {
		http.Error(w, fmt.Sprintf("want ?%s= from 0 to %d", name, limit), http.StatusBadRequest)
		return 0, false
	}
	return n, true
}

func answerLate(w http.ResponseWriter, r *http.Request) {
	ms, ok := number(w, r, "ms", 1000, 3_600_000)
	if !ok {
		return
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		fmt.Fprintln(w, "ok")
	case <-r.Context().Done():
	}
}

// redirect sends to ?to= (default /healthz), ?times= over itself before.
func redirect(w http.ResponseWriter, r *http.Request) {
	code, ok := number(w, r, "code", http.StatusFound, 399)
	if !ok {
		return
	}
	times, ok := number(w, r, "times", 1, 1000)
	if !ok {
		return
	}
	to := r.URL.Query().Get("to")
	if to == "" {
		to = "/healthz"
	}
	if times > 1 {
		q := r.URL.Query()
		q.Set("times", strconv.Itoa(times-1))
		to = "/redirect?" + q.Encode()
	}
	http.Redirect(w, r, to, code)
}

func answerStatus(w http.ResponseWriter, r *http.Request) {
	code, ok := number(w, r, "code", http.StatusOK, 599)
	if !ok {
		return
	}
	if code < 200 {
		http.Error(w, "want ?code= from 200 to 599", http.StatusBadRequest)
		return
	}
	w.WriteHeader(code)
	fmt.Fprintln(w, http.StatusText(code))
}

func answerBody(w http.ResponseWriter, r *http.Request) {
	n, ok := number(w, r, "bytes", 1024, 1<<30)
	if !ok {
		return
	}
	line := strings.Repeat("x", 1023) + "\n"
	for n > 0 {
		part := min(n, len(line))
		if _, err := io.WriteString(w, line[:part]); err != nil {
			return
		}
		n -= part
	}
}

func (s *server) answerExit(w http.ResponseWriter, r *http.Request) {
	code, ok := number(w, r, "code", 0, 255)
	if !ok {
		return
	}
	fmt.Fprintf(w, "ending with %d\n", code)
	select {
	case s.exit <- exitCode(code):
	default:
	}
}
