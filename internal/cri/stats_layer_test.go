package cri

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a layer to measure: its size, how long that takes, and how often it
// was done.
type disk struct {
	bytes int64
	takes time.Duration
	err   error
	walks atomic.Int32
}

func (d *disk) measure(context.Context) (bytes, inodes int64, err error) {
	d.walks.Add(1)
	time.Sleep(d.takes)
	return d.bytes, d.bytes / 100, d.err
}

func TestLayersAreMeasuredNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m layerMeter
		d := &disk{bytes: 100, takes: 10 * time.Millisecond}
		read := func() (layerUsage, bool) { return m.read(t.Context(), func(f func()) { go f() }, d.measure) }
		want := func(bytes uint64, walks int32) {
			t.Helper()
			if u, ok := read(); !ok || u.bytes != bytes || u.inodes != bytes/100 || d.walks.Load() != walks {
				t.Errorf("%+v, %t after %d walks; want %d bytes after %d", u, ok, d.walks.Load(), bytes, walks)
			}
		}
		want(100, 1) // the first is waited for
		d.bytes = 200
		time.Sleep(layerAge - time.Millisecond)
		want(100, 1)
		time.Sleep(time.Millisecond)
		want(200, 2)
		// A failure leaves what is known, and is tried again at once.
		d.err = errors.New("gone")
		time.Sleep(layerAge)
		want(200, 3)
		d.err, d.bytes = nil, 300
		want(300, 4)
		// One that takes long is not waited for if something is known, and then
		// done less often.
		d.takes, d.bytes = 5*time.Second, 400
		time.Sleep(layerAge)
		began := time.Now()
		want(300, 5)
		if took := time.Since(began); took != layerPatience {
			t.Errorf("waited %v", took)
		}
		want(300, 5) // nobody walks twice at once
		time.Sleep(d.takes)
		want(400, 5)
		time.Sleep(layerShare*d.takes - 2*d.takes)
		want(400, 5)
		time.Sleep(2 * d.takes)
		want(400, 6)
		time.Sleep(d.takes)
	})
}

// Who gives up takes nothing from those who wait.
func TestLayerIsMeasuredForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m layerMeter
		d := &disk{bytes: 100, takes: time.Minute}
		background := func(f func()) { go f() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if u, ok := m.read(ctx, background, d.measure); ok {
			t.Errorf("measured %+v", u)
		}
		if u, ok := m.read(t.Context(), background, d.measure); !ok || u.bytes != 100 || d.walks.Load() != 1 {
			t.Errorf("%+v, %t after %d walks", u, ok, d.walks.Load())
		}
	})
}
