package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/shim"
)

// fdsWait is how long a call waits for its descriptors, and they for their call.
const fdsWait = 10 * time.Second

// mailbox receives descriptors and gives them to the call that names their
// token, whichever comes first. Safe for concurrent use.
type mailbox struct {
	mu    sync.Mutex
	boxes map[uint64]chan []*os.File // of capacity 1
}

// box returns the place where token's descriptors are handed over.
func (m *mailbox) box(token uint64) chan []*os.File {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boxes == nil {
		m.boxes = make(map[uint64]chan []*os.File)
	}
	b := m.boxes[token]
	if b == nil {
		b = make(chan []*os.File, 1)
		m.boxes[token] = b
	}
	return b
}

func (m *mailbox) forget(token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, token)
}

// put stores files. If nobody takes them in time they are closed.
func (m *mailbox) put(token uint64, files []*os.File) {
	b := m.box(token)
	select {
	case b <- files:
	default: // a second datagram of the same token: not from our client
		closeFiles(files)
		return
	}
	time.AfterFunc(fdsWait, func() {
		m.forget(token)
		select {
		case files := <-b:
			closeFiles(files)
		default:
		}
	})
}

// take waits for the files of token.
func (m *mailbox) take(ctx context.Context, token uint64) ([]*os.File, error) {
	b := m.box(token)
	defer m.forget(token)
	select {
	case files := <-b:
		return files, nil
	case <-time.After(fdsWait):
		return nil, fmt.Errorf("cannot start: descriptors did not arrive within %s", fdsWait)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receive reads datagrams until conn is closed.
func (m *mailbox) receive(conn *net.UnixConn) {
	for {
		token, files, err := shim.ReceiveFDs(conn)
		if err != nil {
			return
		}
		if token != 0 {
			m.put(token, files)
		}
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
