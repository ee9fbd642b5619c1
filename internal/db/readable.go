package db

import (
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
)

// empty says that the file is there with nothing in it. bbolt begins such a file
// anew without a word.
func empty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// readable makes sure that all values of the file can be read. bbolt trusts what a
// page says of itself: where that was overwritten it panics, or reads memory that
// is not there, both of which would end each command. A missing file is readable.
func readable(path string) error {
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return nil
	}
	return guarded(func() error {
		bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockPatience, OpenFile: openExisting})
		if err != nil {
			return err
		}
		defer bolt.Close()
		return bolt.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b) })
		})
	})
}

// openExisting opens a file that must not be made by looking at it.
func openExisting(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag&^os.O_CREATE, mode)
}

func walk(b *bbolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return walk(b.Bucket(k))
		}
		// Each page of a value has to be there, too.
		for i := 0; i < len(v); i += os.Getpagesize() {
			_ = v[i]
		}
		return nil
	})
}

// guarded makes an error of what bbolt dies of when pages hold anything else than
// it wrote.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%w: %v", errPages, why)
		}
	}()
	return f()
}
