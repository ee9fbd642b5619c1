package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A volume whose content comes from the API looks like this on the host:
//
//	..2026_12_01_10_00_00.1234567890/key   the files of one version
//	..data -> ..2026_12_01_10_00_00.1234567890
//	key -> ..data/key
//
// A new version is a new folder; renaming the ..data link over the old one
// switches all files at once. Containers and the kubelet know these names.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// writePayload makes the volume in dir hold exactly the files, and says whether
// it changed anything. A version that was begun and not finished is removed.
func writePayload(dir string, files Payload, group *int64) (changed bool, err error) {
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("cannot read version link: %w", err)
	}
	same := false
	if current != "" {
		if same, err = holds(filepath.Join(dir, current), files); err != nil {
			return false, err
		}
	}
	if !same {
		if current, err = newVersion(dir, files, group); err != nil {
			return false, err
		}
	}
	if err := linkFiles(dir, files); err != nil {
		return false, err
	}
	return !same, removeStale(dir, current, files)
}

// holds says whether the version folder has exactly the files.
func holds(version string, files Payload) (bool, error) {
	seen := 0
	err := filepath.WalkDir(version, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(version, name)
		if err != nil {
			return err
		}
		want, ok := files[rel]
		if !ok || !entry.Type().IsRegular() {
			return errDiffers
		}
		have, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want.Data) {
			return errDiffers
		}
		seen++
		return nil
	})
	switch {
	case errors.Is(err, errDiffers), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read present version: %w", err)
	}
	return seen == len(files), nil
}

// errDiffers ends a walk early.
var errDiffers = errors.New("differs")

// newVersion writes the files to a new folder and switches to it.
func newVersion(dir string, files Payload, group *int64) (name string, err error) {
	version, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", fmt.Errorf("cannot make new version: %w", err)
	}
	defer func() {
		if err == nil {
			return
		}
		if removeErr := os.RemoveAll(version); removeErr != nil {
			err = problems{err, removeErr}
		}
	}()
	if err := own(version, 0o755, nil, group, true); err != nil {
		return "", err
	}
	for _, rel := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(version, rel, files[rel], group); err != nil {
			return "", err
		}
	}
	name = filepath.Base(version)
	link := filepath.Join(dir, newDataLink)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot remove old version link: %w", err)
	}
	if err := os.Symlink(name, link); err != nil {
		return "", fmt.Errorf("cannot link new version: %w", err)
	}
	if err := os.Rename(link, filepath.Join(dir, dataLink)); err != nil {
		return "", fmt.Errorf("cannot switch to new version: %w", err)
	}
	return name, nil
}

func writeFile(version, rel string, f File, group *int64) error {
	for parent := path.Dir(rel); parent != "."; parent = path.Dir(parent) {
		full := filepath.Join(version, parent)
		if err := os.MkdirAll(full, 0o755); err != nil {
			return fmt.Errorf("cannot make folder: %w", err)
		}
		if err := own(full, 0o755, nil, group, true); err != nil {
			return err
		}
	}
	name := filepath.Join(version, rel)
	if err := os.WriteFile(name, f.Data, 0o600); err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	return own(name, f.Mode, f.User, group, false)
}

// own sets owner and mode of a file that nobody else knows yet. The umask does
// not count. With a group, the group may read, and enter folders.
func own(name string, mode uint32, user, group *int64, folder bool) error {
	uid, gid := 0, 0
	if user != nil {
		uid = int(*user)
	}
	if group != nil {
		gid = int(*group)
		mode |= 0o440
		if folder {
			mode |= 0o2550
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(name, uid, gid); err != nil {
			return fmt.Errorf("cannot set owner: %w", err)
		}
	}
	if err := unix.Chmod(name, mode); err != nil {
		return fmt.Errorf("cannot set mode of %s: %w", name, err)
	}
	return nil
}

// linkFiles makes the links that containers see. One link serves all files of a
// folder. What stands in the way is a mount point for another volume: it stays.
func linkFiles(dir string, files Payload) error {
	for rel := range files {
		top, _, _ := strings.Cut(rel, "/")
		err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot link file: %w", err)
		}
		if user := files[rel].User; err == nil && user != nil {
			if err := os.Lchown(filepath.Join(dir, top), int(*user), -1); err != nil {
				return fmt.Errorf("cannot set owner: %w", err)
			}
		}
	}
	return nil
}

// removeStale removes versions other than the present one, half-made ones too,
// and links to files that are no more.
func removeStale(dir, current string, files Payload) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot list volume: %w", err)
	}
	tops := map[string]bool{}
	for rel := range files {
		top, _, _ := strings.Cut(rel, "/")
		tops[top] = true
	}
	for _, e := range entries {
		name := e.Name()
		full := filepath.Join(dir, name)
		switch {
		case name == dataLink, name == current, tops[name]:
			continue
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(full)
			if err != nil {
				return fmt.Errorf("cannot read link: %w", err)
			}
			if name != newDataLink && !strings.HasPrefix(target, dataLink+"/") {
				continue // not ours
			}
			err = os.Remove(full)
			if err != nil {
				return fmt.Errorf("cannot remove old link: %w", err)
			}
		case e.IsDir() && strings.HasPrefix(name, ".."):
			if err := os.RemoveAll(full); err != nil {
				return fmt.Errorf("cannot remove old version: %w", err)
			}
		}
	}
	return nil
}
