package logs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// rotated matches what rotation adds to a log's name, by us and by the kubelet.
// Compressed files are left out.
var rotated = regexp.MustCompile(`^\.\d{8}-\d{6}$`)

// filesOf lists the files of a log that exist, oldest first, the current last.
func filesOf(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	var old []string
	current := false
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == base:
			current = true
		case len(name) > len(base) && name[:len(base)] == base && rotated.MatchString(name[len(base):]):
			old = append(old, filepath.Join(filepath.Dir(path), name))
		}
	}
	slices.Sort(old) // the names are times
	if current {
		old = append(old, path)
	}
	return old, nil
}

// tailOf finds where the last n lines of files start: in files[i] at offset.
func tailOf(files []string, n int64) (i int, offset int64, err error) {
	if len(files) == 0 {
		return 0, 0, nil
	}
	for i = len(files) - 1; i >= 0; i-- {
		found, at, err := lastLines(files[i], n)
		if err != nil {
			return 0, 0, err
		}
		if found >= n {
			return i, at, nil
		}
		n -= found
	}
	return 0, 0, nil
}

// blockSize is how much of a file is looked at at once, in bytes.
const blockSize = 32 << 10

// lastLines finds where the last n lines of a file start. found may be less than
// n; then at is 0. A file that is gone has no lines.
func lastLines(path string, n int64) (found, at int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	if n == 0 {
		return 0, end, nil
	}
	buf := make([]byte, blockSize)
	for pos := end; pos > 0; {
		size := min(pos, blockSize)
		pos -= size
		if _, err := f.ReadAt(buf[:size], pos); err != nil {
			return 0, 0, err
		}
		for block := buf[:size]; ; {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			if pos+int64(i) != end-1 { // the last line's own end starts no other
				if found++; found == n {
					return found, pos + int64(i) + 1, nil
				}
			}
			block = block[:i]
		}
	}
	if end > 0 {
		found++ // the first line
	}
	return found, 0, nil
}
