package cni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTheFirstConfigurationCounts(t *testing.T) {
	const one = `{"cniVersion": "1.0.0", "name": "NAME", "type": "one"}`
	named := func(name string) string { return strings.ReplaceAll(one, "NAME", name) }
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // the network's name and its plugins, or part of the error
	}{
		"a single plugin":               {map[string]string{"10-a.conf": named("a")}, "a one"},
		"a list":                        {map[string]string{"10-a.conflist": list("a", `{"type": "x"}`, `{"type": "y", "ipam": {"type": "z"}}`)}, "a x y z"},
		"by name, whatever the kind":    {map[string]string{"20-a.conflist": list("a", `{"type": "x"}`), "10-b.json": named("b"), "15-c.conf": named("c")}, "b one"},
		"other files do not count":      {map[string]string{"00-x.txt": "text", "01-x.conf.swp": "", "10-a.conf": named("a")}, "a one"},
		"plugins in files of their own": {map[string]string{"10-a.conflist": `{"cniVersion": "1.1.0", "name": "a"}`, "a/1.conf": `{"type": "p"}`, "a/2.conf": `{"type": "q"}`}, "a p q"},
		"none":                          {nil, "there is no CNI configuration in "},
		"a broken one is not passed by": {map[string]string{"10-a.conf": "{", "20-b.conf": named("b")}, "10-a.conf: "},
		"a list as a single plugin":     {map[string]string{"10-a.conf": list("a", `{"type": "x"}`)}, "missing 'type'"},
		"no plugin":                     {map[string]string{"10-a.conflist": `{"cniVersion": "1.0.0", "name": "a", "plugins": []}`}, "no plugins"},
		"a name that is a path":         {map[string]string{"10-a.conf": named("../a")}, "invalid characters"},
		"a file that is being written":  {map[string]string{"10-a.conflist": ""}, "10-a.conflist: "},
		"a name that only a folder has": {map[string]string{"10-a.conf/file": ""}, "there is no CNI configuration in "},
		"no name":                       {map[string]string{"10-a.conf": `{"type": "x"}`}, "missing network name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := readConf(dir)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(append([]string{c.list.Name}, programs(c.list)...), " ")
			}
			if err == nil && got != tt.want || err != nil && !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A configuration that comes and goes is there or not, whenever it is read.
func TestAConfigurationIsTakenAwayWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	spare, file := filepath.Join(dir, "spare"), filepath.Join(dir, "10-a.conf")
	if err := os.WriteFile(spare, []byte(`{"cniVersion": "1.0.0", "name": "a", "type": "x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var mover sync.WaitGroup
	mover.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, move := range [][2]string{{spare, file}, {file, spare}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Microsecond) // about as long as a try
			}
		}
	})
	seen := map[bool]int{}
	for range 2000 {
		_, err := readConf(dir)
		if err != nil && !errors.Is(err, errNoConf) {
			t.Error(err)
			break
		}
		seen[err == nil]++
	}
	close(done)
	mover.Wait()
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("there %d times and not there %d times, nothing was tried", seen[true], seen[false])
	}

	// A link that leads nowhere is there, and is told.
	if err := os.Symlink("nowhere", file); err != nil {
		t.Fatal(err)
	}
	if _, err := readConf(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v of a link that leads nowhere", err)
	}
}
