package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/berth-run/berth/internal/httpget"
)

// maxGRPCHeaders limits the headers of an answer, in bytes.
const maxGRPCHeaders = 64 << 10

// maxGRPCFrames limits how many frames an answer may take, so that a server
// can't keep a check busy.
const maxGRPCFrames = 1000

// answer is the answer to a gRPC call.
type answer struct {
	httpStatus string
	status     string // grpc-status; empty: there was none
	message    string // grpc-message
	body       []byte
}

// encodeCall returns all that a client sends for one unary call on a connection
// of its own: HTTP/2's preface, settings, headers and the framed message. It is
// the same for each connection, because each begins with an empty header table.
//
// Calls are made by hand, in one goroutine, because clients are made for many
// calls on one connection: the gRPC library starts some ten goroutines for each,
// net/http four, and both take twice the processor time or more.
func encodeCall(authority string, secure bool, path string, message []byte) []byte {
	var b, headers bytes.Buffer
	scheme := "http"
	if secure {
		scheme = "https"
	}
	h := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", scheme}, {":path", path}, {":authority", authority},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", httpget.UserAgent("probe")},
	} {
		// Writes to a bytes.Buffer don't fail, here and below.
		_ = h.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	b.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxGRPCHeaders})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true})
	_ = framer.WriteData(1, true, message)
	return b.Bytes()
}

// exchange sends an encoded call and reads its answer, until ctx ends.
func exchange(ctx context.Context, conn net.Conn, call []byte) (answer, error) {
	if deadline, ok := ctx.Deadline(); ok {
		// It fails only on a closed connection, which the write then reports.
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(call); err != nil {
		return answer{}, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = maxGRPCHeaders
	framer.SetMaxReadFrameSize(16 << 10)
	var a answer
	for range maxGRPCFrames {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return a, errors.New("the server closed the connection")
		}
		if err != nil {
			return a, err
		}
		if done, err := a.add(framer, frame); done || err != nil {
			return a, err
		}
	}
	return a, fmt.Errorf("no end after %d frames", maxGRPCFrames)
}

// add takes in one frame; done says that the answer is complete.
func (a *answer) add(framer *http2.Framer, frame http2.Frame) (done bool, err error) {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return false, framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return false, framer.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		if f.Truncated {
			return false, fmt.Errorf("the answer's headers are longer than %d bytes", maxGRPCHeaders)
		}
		a.headers(f.Fields)
		return f.StreamEnded(), nil
	case *http2.DataFrame:
		if len(a.body)+len(f.Data()) > maxBody {
			return false, fmt.Errorf("the answer is longer than %d bytes", maxBody)
		}
		a.body = append(a.body, f.Data()...)
		return f.StreamEnded(), nil
	case *http2.RSTStreamFrame:
		return false, fmt.Errorf("the server broke off the call: %s", f.ErrCode)
	case *http2.GoAwayFrame:
		if f.LastStreamID < 1 {
			return false, fmt.Errorf("the server refuses calls: %s", f.ErrCode)
		}
	}
	return false, nil
}

// headers takes in the fields of a header or trailer.
func (a *answer) headers(fields []hpack.HeaderField) {
	for _, f := range fields {
		switch f.Name {
		case ":status":
			a.httpStatus = f.Value
		case "grpc-status":
			a.status = f.Value
		case "grpc-message":
			a.message = f.Value
			if plain, err := url.PathUnescape(f.Value); err == nil {
				a.message = plain
			}
		}
	}
}
