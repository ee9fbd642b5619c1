package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/shim"
)

func goodState() state {
	return state{
		Version: stateVersion, ID: "a", BootID: "boot", Phase: running, Bundle: "/run/b/a", Mounts: 1,
		LogPath: "/var/log/a", CgroupPaths: map[string]string{"memory": cgroupRoot + "/memory/berth/a"},
		PrivatePIDs: true, PID: 4711, Ticks: 99, CreatedAt: time.Unix(100, 0).UTC(), StartedAt: time.Unix(101, 0).UTC(),
	}
}

func TestStateSurvivesTheDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := goodState()
	want.Phase, want.Exit = exited, &exitState{Code: 137, Signal: 9, At: time.Unix(102, 0).UTC(), OOMKilled: true, Known: true}
	if err := saveState(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	// A kill while saving leaves the old file.
	if err := os.WriteFile(filepath.Join(dir, stateName+".tmp"), []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadState(dir); err != nil {
		t.Error(err)
	}
}

func TestStateThatIsNotOursIsRefused(t *testing.T) {
	for name, change := range map[string]func(*state){
		"a newer version":                  func(s *state) { s.Version = stateVersion + 1 },
		"no version":                       func(s *state) { s.Version = 0 },
		"a program without a path":         func(s *state) { s.Program = &shim.Program{} },
		"a program in a version without":   func(s *state) { s.Version, s.Program = 1, &shim.Program{Path: "/bin/runc"} },
		"another container's":              func(s *state) { s.ID = "b" },
		"an unknown phase":                 func(s *state) { s.Phase = "sleeping" },
		"running without a pid":            func(s *state) { s.PID = 0 },
		"the first process of the machine": func(s *state) { s.PID = 1 },
		"a negative pid, which is a group": func(s *state) { s.PID = -5 },
		"a holder that is init":            func(s *state) { s.HolderPID = 1 },
		"exited without an exit":           func(s *state) { s.Phase = exited },
		"a relative bundle":                func(s *state) { s.Bundle = "b" },
		"the root as bundle":               func(s *state) { s.Bundle = "/" },
		"a relative log":                   func(s *state) { s.LogPath = "log" },
		"no cgroup":                        func(s *state) { s.CgroupPaths = nil },
		"the root of a hierarchy":          func(s *state) { s.CgroupPaths["memory"] = cgroupRoot + "/memory" },
		"a path out of the hierarchy":      func(s *state) { s.CgroupPaths["memory"] = cgroupRoot + "/memory/../../../etc" },
		"a folder that is no cgroup":       func(s *state) { s.CgroupPaths["memory"] = "/home" },
		"fewer than no mounts":             func(s *state) { s.Mounts = -1 },
	} {
		st := goodState()
		change(&st)
		b, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState("a", b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	st := goodState()
	b, _ := json.Marshal(st)
	if _, err := decodeState("a", b); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// Whatever is in a state file: no panic, and what is accepted can do no harm
// and is the same after another round.
func FuzzState(f *testing.F) {
	b, err := json.Marshal(goodState())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(`{"version":1,"id":"a","phase":"creating","bundle":"/b"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := decodeState("a", b)
		if err != nil {
			return
		}
		if st.ID != "a" || st.PID < 0 || st.PID == 1 || st.HolderPID < 0 || st.HolderPID == 1 || st.Mounts < 0 {
			t.Fatalf("accepted %+v", st)
		}
		for _, p := range st.CgroupPaths {
			rel, ok := strings.CutPrefix(p, cgroupRoot+"/")
			if !ok || strings.Contains(p, "/..") || rel == "" {
				t.Fatalf("accepted cgroup %q", p)
			}
		}
		if _, _, ok := strings.Cut(st.Bundle[1:], "\x00"); ok || st.Bundle[0] != '/' {
			t.Fatalf("accepted bundle %q", st.Bundle)
		}
		again, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState("a", again); err != nil {
			t.Fatalf("not accepted again: %v", err)
		}
	})
}

func TestStatLineWithAnyName(t *testing.T) {
	rest := " S 7 8 9 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 1234 5 6" + strings.Repeat(" 0", 27) + " 256"
	for _, name := range []string{"sh", "a b", "x) R 1 (y", ")", "(("} {
		got, err := parseStat([]byte("42 (" + name + ")" + rest + "\n"))
		if err != nil || got != (pidStat{state: 'S', parent: 7, ticks: 1234, exit: 256}) {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	if _, err := parseStat([]byte("42 (sh) S 1")); err == nil {
		t.Error("a short line is accepted")
	}
	self, err := readStat(os.Getpid())
	if err != nil || self.parent != os.Getppid() || self.ticks == 0 {
		t.Errorf("own stat %+v, %v", self, err)
	}
}

func TestMountOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		options []string
		flags   uintptr
		data    string
	}{
		"flags and data":     {[]string{"ro", "lowerdir=/a:/b", "nosuid"}, 1 | 2, "lowerdir=/a:/b"},
		"the last one holds": {[]string{"ro", "rw"}, 0, ""},
		"recursive bind":     {[]string{"rbind"}, 4096 | 16384, ""},
		"unknown is data":    {[]string{"mode=755", "index=off"}, 0, "mode=755,index=off"},
	} {
		flags, data := parseOptions(tc.options)
		if flags != tc.flags || strings.Join(data, ",") != tc.data {
			t.Errorf("%s: %#x %q, want %#x %q", name, flags, data, tc.flags, tc.data)
		}
	}
}

// FuzzLog: whatever is written in whatever pieces, joining the entries gives it
// back, but for a newline at the end; and so does a shim that takes over in between.
func FuzzLog(f *testing.F) {
	f.Add([]byte("a\nb"), 1)
	f.Add(bytes.Repeat([]byte("x"), 40000), 1000)
	f.Add([]byte("\n\n"), 7)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		piece = min(max(piece, 1), inHandSize)
		path := filepath.Join(t.TempDir(), "log")
		l := newLogFile(path, 0, 0)
		hand := &inHand{mem: make([]byte, inHandHead+inHandSize)}
		var tail []byte
		for rest := data; len(rest) > 0; {
			n := copy(hand.space()[:piece], rest)
			before := bytes.Clone(tail)
			hand.took(n)
			tail = l.ingest("stdout", tail, hand.space()[:n], hand)
			// A shim that is killed now leaves as much to the next.
			for _, kept := range [][]byte{before, tail} {
				if got := hand.found().incomplete(kept); !bytes.Equal(got, tail) {
					t.Fatalf("%d bytes are incomplete for the next shim, want %d", len(got), len(tail))
				}
			}
			hand.drop(n)
			rest = rest[n:]
		}
		l.finish("stdout", tail)
		l.close()
		written, err := os.ReadFile(path)
		if err != nil && len(data) > 0 {
			t.Fatal(err)
		}
		var joined []byte
		for line := range bytes.Lines(written) {
			parts := bytes.SplitN(line, []byte(" "), 4)
			if len(parts) != 4 || len(parts[3]) > maxLine+1 {
				t.Fatalf("entry %q", line)
			}
			text := bytes.TrimSuffix(parts[3], []byte("\n"))
			joined = append(joined, text...)
			if string(parts[2]) == "F" {
				joined = append(joined, '\n')
			}
		}
		if want := bytes.TrimSuffix(data, []byte("\n")); !bytes.Equal(bytes.TrimSuffix(joined, []byte("\n")), want) {
			t.Fatalf("got %q, want %q", joined, want)
		}
	})
}
