package probe

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// Answers come from containers, which may be hostile.
func FuzzHealthStatus(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02\x08\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x05\x12\x01x\x08\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, err := healthStatus(body); (s == "") == (err == nil) {
			t.Errorf("status %q, error %v", s, err)
		}
	})
}

func FuzzShorten(f *testing.F) {
	f.Add("é\xff…", 5)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 4 || limit > 1<<20 {
			t.Skip("no caller asks for such a limit")
		}
		if got := shorten(s, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("shorten(%q, %d) = %q", s, limit, got)
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$(B")
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "$(A)"}}}
	f.Fuzz(func(t *testing.T, arg string) {
		got := expand(arg, container)
		if !strings.Contains(arg, "$") && got != arg {
			t.Errorf("expand(%q) = %q", arg, got)
		}
	})
}

// FuzzGRPCAnswer lets a server answer anything.
func FuzzGRPCAnswer(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		var served sync.WaitGroup
		served.Go(func() { _, _ = io.Copy(io.Discard, server) })
		served.Go(func() {
			_, _ = server.Write(sent)
			server.Close()
		})
		a, err := exchange(t.Context(), client, encodeCall("x", false, "/x", nil))
		client.Close()
		served.Wait()
		if err == nil && a.httpStatus == "" && a.status == "" && len(a.body) == 0 {
			t.Skip("an empty answer")
		}
		if len(a.body) > maxBody {
			t.Errorf("%d bytes of body", len(a.body))
		}
	})
}
