package home

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRoot is where a machine's own berth keeps its things.
const DefaultRoot = "/var/lib/berth"

// ErrForeign says that a folder holds what berth did not make.
var ErrForeign = errors.New("it holds other things")

// Home is a root and its run folder. The paths are absolute and free of
// symbolic links.
type Home struct {
	Root, Run string
	// Mark tells the names of things outside the folders apart: part of the
	// names of the bridge and of the cgroups. Empty for DefaultRoot.
	Mark  string
	known marker // what the root remembered when it was looked at; zero: nothing
}

// made says that the root was marked as berth's when it was looked at.
func (h Home) made() bool { return h.known != marker{} }

// Find says which folders are meant by root (empty: DefaultRoot) and run (empty:
// what the root remembers, else one named after the root). It makes nothing. A
// root or run folder that is somebody else's gives ErrForeign; one that does not
// exist yet is none's.
func Find(root, run string) (Home, error) {
	if root == "" {
		root = DefaultRoot
	}
	resolved, err := resolve("root", root, maxRoot)
	if err != nil {
		return Home{}, err
	}
	h := Home{Root: resolved}
	h.known, err = readMarker(h.Root)
	switch {
	case err == nil:
		h.Mark = h.known.Mark
	case errors.Is(err, os.ErrNotExist):
		if err := nothingElse("root", h.Root, rootNames); err != nil {
			return Home{}, err
		}
		h.Mark = markOf(root, h.Root)
	default:
		return Home{}, err
	}
	if run == "" {
		run = h.known.Run
	}
	if run == "" {
		run = "/run/berth" + h.Mark
	}
	if h.Run, err = resolve("run folder", run, maxRun); err != nil {
		return Home{}, err
	}
	if h.made() && h.known.Run != h.Run && h.keepsRun() {
		return Home{}, fmt.Errorf("the root %s uses the run folder %s, not %s: leave --run out, or clean up first", h.Root, h.known.Run, h.Run)
	}
	return h, h.checkRun()
}

// Exists says whether somebody has worked on the root, and nobody cleaned it up.
func (h Home) Exists() bool {
	_, err := os.Stat(filepath.Join(h.Root, markerName))
	return err == nil
}

// markOf is a short hash of a root's path.
func markOf(given, resolved string) string {
	if standard, err := resolve("root", DefaultRoot, maxRoot); given == DefaultRoot || err == nil && resolved == standard {
		return ""
	}
	sum := sha256.Sum256([]byte(resolved))
	return "-" + hex.EncodeToString(sum[:3])
}

// How long the folders' paths may be, in bytes: paths below them go into mount
// options, which are short, and the run folder's into the alias of the bridge.
const (
	maxRoot = 255
	maxRun  = 230
)

// resolve makes path absolute and follows the symbolic links in as much of it as
// exists. what names it in errors; it may have limit bytes.
func resolve(what, path string, limit int) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot find the %s %q: the current folder is gone, give an absolute path", what, path)
	}
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(abs)
		if err == nil {
			if info, err := os.Stat(real); err == nil && !info.IsDir() {
				return "", fmt.Errorf("cannot use the %s %s: %s is a file, not a folder; choose another", what, filepath.Join(real, rest), real)
			}
			abs = filepath.Join(real, rest)
			break
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return "", fmt.Errorf("cannot find the %s: %w", what, err)
		}
		if target, err := os.Readlink(abs); err == nil {
			return "", fmt.Errorf("cannot use the %s %s: it is a link to %s, which does not exist; make that folder first", what, abs, target)
		}
		abs, rest = filepath.Dir(abs), filepath.Join(filepath.Base(abs), rest)
	}
	if len(abs) > limit {
		return "", fmt.Errorf("cannot use the %s %s…: its path has %d bytes, at most %d go; choose a shorter one", what, abs[:40], len(abs), limit)
	}
	// The kernel's mount options know no way to write these.
	if i := strings.IndexFunc(abs, func(r rune) bool { return strings.ContainsRune(",:\\", r) || r < ' ' || r == 0x7f }); i >= 0 {
		return "", fmt.Errorf("cannot use the %s %q: containers can't be mounted below a path with %q in it; choose another", what, abs, abs[i:i+1])
	}
	return abs, nil
}

// marker is what a root remembers of itself, in JSON.
type marker struct {
	Run  string `json:"run"`
	Mark string `json:"mark"`
	Use  Use    `json:"use"`
}

// Use is what a root serves: what sandboxes there are in it is told by one owner.
type Use string

const (
	Pods Use = "pods" // an agent's
	CRI  Use = "cri"  // for callers of the CRI
	Any  Use = ""     // whatever it is
)

func readMarker(root string) (m marker, err error) {
	path := filepath.Join(root, markerName)
	data, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return m, err
		}
		return m, fmt.Errorf("cannot look whose folder it is: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil || !filepath.IsAbs(m.Run) {
		return m, fmt.Errorf("cannot tell what the root %s uses: %s is damaged; write {\"run\": \"/its/run/folder\", \"mark\": \"…\"} there, as `ip link` shows the mark after the name of the bridge", root, path)
	}
	return m, nil
}

func (h Home) writeMarker(m marker) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(h.Root, markerName), append(data, '\n'))
}

// writeFile replaces a file: whoever reads it meanwhile, or after a crash, sees
// the old one or the new one.
func writeFile(path string, data []byte) error {
	tmp := path + newSuffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // who may not use the root may know where its socket is
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// nothingElse refuses a folder in which something has a name that is not in names.
func nothingElse(what, dir string, names []string) error {
	others, err := others(dir, names)
	if errors.Is(err, os.ErrPermission) {
		return nil // who can't even look can't do any harm
	}
	if err != nil {
		return fmt.Errorf("cannot look at the %s: %w", what, err)
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("cannot use %s as %s: %w that berth did not make (%s); choose a new or an empty folder", dir, what, ErrForeign, some(others))
}

// others lists what is in a folder and bears none of the names.
func others(dir string, names []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			found = append(found, e.Name())
		}
	}
	return found, err
}

// some names a few of many.
func some(names []string) string {
	const few = 3
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}
