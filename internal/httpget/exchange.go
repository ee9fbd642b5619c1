package httpget

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxInterim is how many interim (1xx) answers are skipped, as in net/http.
const maxInterim = 5

// buffers are what requests hand on to each other.
type buffers struct {
	in  *bufio.Reader
	out *bufio.Writer
}

var bufferPool = sync.Pool{New: func() any {
	return &buffers{in: bufio.NewReader(nil), out: bufio.NewWriterSize(nil, 1024)}
}}

// exchange is one request and its answer on one connection. It is the answer's
// body too; closing it ends the connection. It belongs to one goroutine.
type exchange struct {
	conn    Conn
	limited io.LimitedReader
	buf     *buffers    // nil once closed
	stop    func() bool // ends the watch over the request's context
	body    io.Reader   // the answer's body as net/http reads it
	req     *http.Request
}

func (x *exchange) send(req *http.Request) (*http.Response, error) {
	if !req.Close {
		once := *req
		once.Close = true
		req = &once
	}
	x.req = req
	if err := req.Write(x.buf.out); err != nil {
		return nil, err
	}
	if err := x.buf.out.Flush(); err != nil {
		return nil, err
	}
	for interim := 0; ; interim++ {
		resp, err := http.ReadResponse(x.buf.in, req)
		switch {
		case err != nil && x.limited.N <= 0:
			return nil, fmt.Errorf("server's header is longer than %d bytes", maxHeaderBytes)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, io.EOF
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode >= 200:
			// As much again for body and trailer; nobody reads more of a body.
			x.limited.N = maxHeaderBytes
			x.body = resp.Body
			resp.Body = x
			return resp, nil
		case interim >= maxInterim:
			return nil, errors.New("server sent too many interim answers")
		}
	}
}

// Read reads the answer's body.
func (x *exchange) Read(p []byte) (int, error) {
	if x.buf == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := x.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cause(x.req.Context(), err)
	}
	return n, err
}

// Close ends the connection. It reads nothing more of the body: net/http's own
// body would be drained to the end first.
func (x *exchange) Close() error {
	if x.buf == nil {
		return nil
	}
	x.stop()
	err := x.conn.Close()
	x.buf.in.Reset(nil)
	x.buf.out.Reset(nil)
	bufferPool.Put(x.buf)
	x.buf = nil
	return err
}
