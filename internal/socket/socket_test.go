package socket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnyLength(t *testing.T) {
	for _, length := range []int{99, 100, 107, 108, 250, 1000} {
		path := t.TempDir()
		for len(path) < length-7 {
			path += "/" + strings.Repeat("d", min(100, length-7-len(path)))
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(path, "x.sock")
		l, err := Listen(path)
		if err != nil {
			t.Errorf("%d bytes: %v", len(path), err)
			continue
		}
		if conn, err := Dial(t.Context(), path); err != nil {
			t.Errorf("%d bytes: %v", len(path), err)
		} else {
			conn.Close()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	}
}
