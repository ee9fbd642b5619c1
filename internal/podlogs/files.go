package podlogs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// file is one log file of a container.
type file struct {
	attempt int
	rotated string // when it was put aside; empty: it is being written
	path    string
	info    fs.FileInfo
}

// list returns the log files in a container's folder in the order in which they
// were written.
func list(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var files []file
	for _, e := range entries {
		number, rest, ok := strings.Cut(e.Name(), ".log")
		attempt, err := strconv.Atoi(number)
		if !ok || err != nil || attempt < 0 || rest != "" && rest[0] != '.' {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile, or not ours
		}
		files = append(files, file{
			attempt: attempt, rotated: strings.TrimPrefix(rest, "."),
			path: filepath.Join(dir, e.Name()), info: info,
		})
	}
	slices.SortFunc(files, func(a, b file) int {
		if c := cmp.Compare(a.attempt, b.attempt); c != 0 {
			return c
		}
		if (a.rotated == "") != (b.rotated == "") {
			if a.rotated == "" {
				return 1
			}
			return -1
		}
		return strings.Compare(a.rotated, b.rotated)
	})
	return files, nil
}

// Attempts lists the attempts of which a container's folder holds logs, oldest
// first.
func Attempts(dir string) ([]int, error) {
	files, err := list(dir)
	var attempts []int
	for _, f := range files {
		if n := len(attempts); n == 0 || attempts[n-1] != f.attempt {
			attempts = append(attempts, f.attempt)
		}
	}
	return attempts, err
}
