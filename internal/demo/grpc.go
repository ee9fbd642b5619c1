package demo

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// The gRPC health protocol is small enough to be spoken by hand: one message
// each way, over HTTP/2, with the outcome in trailers. That spares the binary
// several megabytes. The format: a byte 0 (not compressed), the length in four
// bytes, and the message in protobuf:
//
//	message HealthCheckRequest  { string service = 1; }
//	message HealthCheckResponse { ServingStatus status = 1; }
const (
	healthCheckPath = "/grpc.health.v1.Health/Check"
	healthWatchPath = "/grpc.health.v1.Health/Watch"
)

// The serving statuses of the protocol, by number. healthAuto is ours: SERVING
// while ready, else NOT_SERVING.
var healthStatuses = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

const healthAuto = -1

// gRPC status codes.
const (
	grpcOK              = 0
	grpcInvalidArgument = 3
	grpcNotFound        = 5
	grpcUnimplemented   = 12
)

func grpcHealth(p *program, args []string) error {
	s := newServer(p)
	status := "SERVING"
	rest, err := parse(args, func(fs *flag.FlagSet) {
		s.define(fs, 9090)
		fs.StringVar(&s.service, "service", "", "")
		fs.StringVar(&status, "status", status, "")
	})
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return usageError{fmt.Sprintf("what is %q?", rest[0])}
	}
	number, ok := healthStatus(status)
	if !ok {
		return usageError{fmt.Sprintf("%q is no status: want one of %s", status, strings.Join(healthStatuses, ", "))}
	}
	if s.readyAfter == 0 {
		s.serving.Store(number)
	}
	return s.run()
}

func healthStatus(name string) (int32, bool) {
	for i, known := range healthStatuses {
		if strings.EqualFold(name, known) {
			return int32(i), true
		}
	}
	return 0, false
}

// setServing changes the status: POST /serving?status=NOT_SERVING.
func (s *server) setServing(w http.ResponseWriter, r *http.Request) {
	number, ok := healthStatus(r.URL.Query().Get("status"))
	if r.Method != http.MethodPost || !ok {
		http.Error(w, "want POST with ?status= one of "+strings.Join(healthStatuses, ", "), http.StatusBadRequest)
		return
	}
	s.serving.Store(number)
	fmt.Fprintln(w, healthStatuses[number])
}

// checkHealth answers grpc.health.v1.Health/Check.
func (s *server) checkHealth(w http.ResponseWriter, r *http.Request) {
	service, err := readHealthRequest(r.Body)
	switch {
	case err != nil:
		grpcEnd(w, grpcInvalidArgument, err.Error())
		return
	case service != "" && service != s.service:
		grpcEnd(w, grpcNotFound, "unknown service")
		return
	}
	status := s.serving.Load()
	if status == healthAuto {
		status = 2
		if s.ready.Load() {
			status = 1
		}
	}
	message := []byte{1 << 3, byte(status)} // field 1, a number
	w.Header().Set("Content-Type", "application/grpc")
	if _, err := w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)); err != nil {
		return
	}
	grpcEnd(w, grpcOK, "")
}

func unimplemented(w http.ResponseWriter, _ *http.Request) {
	grpcEnd(w, grpcUnimplemented, "only Check is implemented")
}

// grpcEnd sends the outcome of a call.
func grpcEnd(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", fmt.Sprint(code))
	if message != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", message)
	}
}

// readHealthRequest reads the frame and gives the service's name.
func readHealthRequest(r io.Reader) (service string, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", fmt.Errorf("cannot read the request: %w", err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if head[0] != 0 || size > 4096 {
		return "", fmt.Errorf("request is compressed or has %d bytes", size)
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(r, message); err != nil {
		return "", fmt.Errorf("cannot read the request: %w", err)
	}
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != 2 { // the message has only fields with a length
			return "", fmt.Errorf("request has a field that is not known")
		}
		length, m := binary.Uvarint(message[n:])
		if m <= 0 || length > uint64(len(message)-n-m) {
			return "", fmt.Errorf("request is cut off")
		}
		value := message[n+m:][:length]
		if tag>>3 == 1 {
			service = string(value)
		}
		message = message[n+m+int(length):]
	}
	return service, nil
}
