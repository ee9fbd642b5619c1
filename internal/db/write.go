package db

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
)

// Put sets a value. Get sees it at once; it is on disk after the next Sync, or
// within MaxDelay while Run runs. The caller must not change value any more.
func (d *DB) Put(bucket, name string, value []byte) {
	d.queue(key{bucket, name}, &value)
}

// Delete removes a value; as durable as Put.
func (d *DB) Delete(bucket, name string) {
	d.queue(key{bucket, name}, nil)
}

func (d *DB) queue(k key, value *[]byte) {
	d.mu.Lock()
	d.pending[k] = value
	d.queued++
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Sync returns when all that was put before the call is on disk, or cannot be
// written now. What could not be written stays pending: later calls try again.
// When ctx ends first, the values may or may not be on disk.
func (d *DB) Sync(ctx context.Context) error {
	d.mu.Lock()
	want := d.queued
	done := d.durable >= want
	d.mu.Unlock()
	if done {
		return nil
	}
	// Whoever gets the channel writes for all that are waiting.
	select {
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the database: %w", context.Cause(ctx))
	case d.commit <- struct{}{}:
	}
	defer func() { <-d.commit }()
	d.mu.Lock()
	if d.durable >= want {
		d.mu.Unlock()
		return nil
	}
	upTo := d.queued
	d.writing, d.pending = d.pending, make(map[key]*[]byte)
	batch := d.writing
	d.mu.Unlock()

	err := d.write(batch)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.writing, d.failed = nil, err
	if err != nil {
		for k, v := range batch {
			if _, newer := d.pending[k]; !newer {
				d.pending[k] = v
			}
		}
		return err
	}
	d.durable = upTo
	return nil
}

// write puts the batch on disk in one transaction.
func (d *DB) write(batch map[key]*[]byte) error {
	if d.cfg.refuse != nil {
		if err := d.cfg.refuse(); err != nil {
			return fmt.Errorf("cannot write database %s: %w", d.cfg.Path, err)
		}
	}
	err := d.bolt.Update(func(tx *bbolt.Tx) error {
		for k, v := range batch {
			b, err := tx.CreateBucketIfNotExists([]byte(k.bucket))
			if err != nil {
				return err
			}
			if v == nil {
				err = b.Delete([]byte(k.name))
			} else {
				err = b.Put([]byte(k.name), *v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot write database %s: %w", d.cfg.Path, err)
	}
	return nil
}

// Get returns the newest value, on disk or not; nil: there is none. The caller
// must not change it.
func (d *DB) Get(bucket, name string) ([]byte, error) {
	if v, ok := d.unwritten(key{bucket, name}); ok {
		return v, nil
	}
	var value []byte
	err := d.bolt.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucket)); b != nil {
			value = append(value, b.Get([]byte(name))...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s of %s: %w", name, bucket, err)
	}
	return value, nil
}

func (d *DB) unwritten(k key) (value []byte, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, values := range []map[key]*[]byte{d.pending, d.writing} {
		if v, ok := values[k]; ok {
			if v == nil {
				return nil, true
			}
			return *v, true
		}
	}
	return nil, false
}

// All returns all values of a bucket by name, the newest of each.
func (d *DB) All(bucket string) (map[string][]byte, error) {
	// The order matters: a value that is being written now is found in at
	// least one of the two.
	d.mu.Lock()
	newer := make(map[string]*[]byte)
	for _, values := range []map[key]*[]byte{d.writing, d.pending} {
		for k, v := range values {
			if k.bucket == bucket {
				newer[k.name] = v
			}
		}
	}
	d.mu.Unlock()
	all := make(map[string][]byte)
	err := d.bolt.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			all[string(k)] = append([]byte(nil), v...)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", bucket, err)
	}
	for name, v := range newer {
		if v == nil {
			delete(all, name)
		} else {
			all[name] = *v
		}
	}
	return all, nil
}

// Failed says why the last attempt to write failed; nil: it did not.
func (d *DB) Failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}
