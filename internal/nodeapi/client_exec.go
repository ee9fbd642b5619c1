package nodeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // client-go still takes this one
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/agent"
)

// Exec returns what runs a command in a container: call its StreamWithContext.
func (c *Client) Exec(namespace, pod, container string, r agent.StreamRequest) (remotecommand.Executor, error) {
	q := url.Values{"command": r.Command}
	for name, v := range map[string]bool{"input": r.Stdin, "output": r.Stdout, "error": r.Stderr, "tty": r.TTY} {
		q.Set(name, strconv.FormatBool(v))
	}
	target := &url.URL{
		Scheme: "http", Host: "berth", RawQuery: q.Encode(),
		Path: "/exec/" + namespace + "/" + pod + "/" + container,
	}
	guarded := &guardedUpgrade{c: c}
	transport, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		PingPeriod:       5 * time.Second,
		UpgradeTransport: &http.Transport{DialContext: guarded.dial},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up the streams of a command: %w", err)
	}
	guarded.http = transport
	return remotecommand.NewSPDYExecutorForTransports(guarded, transport, http.MethodPost, target)
}
