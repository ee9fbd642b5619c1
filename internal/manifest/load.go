package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stdinName is what - is called in messages.
const stdinName = "<stdin>"

// Options of Load. The zero value is useful.
type Options struct {
	Stdin io.Reader // read for the path "-"; default os.Stdin
	// RuntimeClasses are those that pods may have. Default: none.
	RuntimeClasses []string
}

// Load reads manifests from files, folders and, for "-", standard input. Of a
// folder it reads *.yaml, *.yml and *.json, sorted by name, without hidden
// files, editors' backups and folders below. A file that is named twice, also
// by its folder, is read once.
//
// All problems of all files are returned together; the set holds the objects
// without errors and must not be run when problems.Err() is not nil.
func Load(paths []string, options Options) (Set, Problems) {
	l := loader{stdin: options.Stdin, classes: options.RuntimeClasses}
	if l.stdin == nil {
		l.stdin = os.Stdin
	}
	for _, path := range paths {
		l.path(path)
	}
	if len(paths) == 0 {
		f := &file{name: "berth"}
		f.report(Problem{Rule: RuleRead, Message: "no manifest is named", Hint: "name a file, a folder, or - for standard input"})
		l.files = append(l.files, f)
	}
	return join(l.files)
}

type loader struct {
	stdin     io.Reader
	stdinRead bool
	classes   []string
	seen      []os.FileInfo
	files     []*file
}

// fail adds a file that has only one problem.
func (l *loader) fail(name string, p Problem) {
	f := &file{name: name}
	f.report(p)
	l.files = append(l.files, f)
}

func (l *loader) path(path string) {
	if path == "-" {
		if l.stdinRead {
			l.fail(stdinName, Problem{Rule: RuleRead, Message: "is named twice", Hint: "write - once"})
			return
		}
		l.stdinRead = true
		l.read(stdinName, l.stdin, true)
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		l.fail(path, unreadable(path, err))
		return
	}
	if info.IsDir() {
		l.folder(path)
		return
	}
	l.file(path, info, true)
}

// file reads one file. named says that the user gave its name, so that it must
// hold something.
func (l *loader) file(path string, info os.FileInfo, named bool) {
	if info.Mode().IsRegular() {
		if slices.ContainsFunc(l.seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
			return
		}
		l.seen = append(l.seen, info)
	}
	f, err := os.Open(path)
	if err != nil {
		l.fail(path, unreadable(path, err))
		return
	}
	defer f.Close()
	l.read(path, f, named)
}

func (l *loader) read(name string, r io.Reader, named bool) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		l.fail(name, unreadable(name, err))
		return
	}
	f := decodeFile(name, data, l.classes)
	if f.empty() {
		p := Problem{Rule: RuleKind, Message: "holds no object", Hint: "write a Pod, ConfigMap or Secret"}
		if len(data) == 0 {
			p.Message = "is empty"
		}
		if !named {
			p.Severity, p.Hint = Warning, ""
		}
		f.report(p)
	}
	l.files = append(l.files, f)
}

func (l *loader) folder(path string) {
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		l.fail(path, unreadable(path, err))
		return
	}
	read := 0
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		full := filepath.Join(path, e.Name())
		info, err := os.Stat(full) // follows links, as those of a mounted ConfigMap
		if err != nil {
			l.fail(full, unreadable(full, err))
			read++
			continue
		}
		if info.Mode().IsRegular() {
			l.file(full, info, false)
			read++
		}
	}
	if read == 0 {
		l.fail(path, Problem{Rule: RuleRead, Message: "the folder holds no *.yaml, *.yml or *.json file", Hint: "folders below it are not read"})
	}
}

// isManifest tells manifests from what else lies in a folder: hidden files and
// what editors leave behind.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasPrefix(name, "~") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func unreadable(path string, err error) Problem {
	p := Problem{Rule: RuleRead, Message: fmt.Sprintf("cannot read: %v", cause(err))}
	switch {
	case strings.Contains(path, "://"):
		p.Message, p.Hint = "is an address, not a file", "write curl -fsSL "+path+" | berth run -"
	case errors.Is(err, fs.ErrNotExist):
		p.Message, p.Hint = "there is no such file", nearby(path)
		if _, err := os.Lstat(path); err == nil {
			p.Message, p.Hint = "is a link to a file that is not there", ""
		}
	case errors.Is(err, fs.ErrPermission):
		p.Message, p.Hint = "cannot read: permission denied", "see ls -l"
	}
	return p
}

// cause is err without the path that the message has already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// nearby suggests a file of the same folder.
func nearby(path string) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return "the folder is missing too"
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if near, _ := nearest(filepath.Base(path), names); near != "" {
		return "did you mean " + filepath.Join(filepath.Dir(path), near) + "?"
	}
	return "check the path"
}
