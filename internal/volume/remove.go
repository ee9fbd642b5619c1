package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep removal goes in one descent, each level of which holds a
// file open. What lies deeper is moved up first, so that no container can make
// a tree that can't be removed.
const maxDepth = 100

// removeTree removes the folder or file at path and all in it. It follows no
// link and enters no mount: at a mount it stops with EXDEV or EBUSY, having
// touched nothing in it.
func removeTree(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer unix.Close(parent)
	r := remover{top: parent, path: path}
	if err := r.remove(parent, filepath.Base(path), 0); err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	// What was moved up may itself hold what must be moved up.
	for len(r.moved) > 0 {
		name := r.moved[0]
		r.moved = r.moved[1:]
		if err := r.remove(parent, name, 0); err != nil {
			return fmt.Errorf("cannot remove %s: %w", path, err)
		}
	}
	return nil
}

type remover struct {
	top   int // where deep folders are moved to
	path  string
	moved []string
	count int
}

func (r *remover) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	if depth == maxDepth {
		r.count++
		up := fmt.Sprintf(".%s.deep%d", filepath.Base(r.path), r.count)
		if err := unix.Renameat(parent, name, r.top, up); err != nil {
			return &os.PathError{Op: "rename", Path: name, Err: err}
		}
		r.moved = append(r.moved, up)
		return nil
	}
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	// Some file systems skip entries while others are removed: look again until
	// none is left.
	for {
		names, err := dir.Readdirnames(1024)
		if len(names) == 0 {
			if _, seekErr := dir.Seek(0, 0); seekErr != nil {
				return seekErr
			}
			if names, err = dir.Readdirnames(1024); len(names) == 0 {
				break
			}
		}
		if err != nil {
			return err
		}
		for _, child := range names {
			if err := r.remove(fd, child, depth+1); err != nil {
				return err
			}
		}
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}
