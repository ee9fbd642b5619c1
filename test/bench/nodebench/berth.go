package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// berth is a berth agent behind its socket.
type berth struct{ client *http.Client }

func newBerth(socket string) *berth {
	return &berth{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 16,
	}}}
}

func (b *berth) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://berth"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

func (b *berth) call(ctx context.Context, method, path string, body any) error {
	resp, err := b.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (b *berth) create(ctx context.Context, pod *corev1.Pod) error {
	return b.call(ctx, http.MethodPost, "/berth/v1/apply", map[string]any{"pods": []*corev1.Pod{pod}})
}

func (b *berth) delete(ctx context.Context, name string) error {
	return b.call(ctx, http.MethodDelete, "/berth/v1/pods/default/"+name, nil)
}

func (b *berth) watch(ctx context.Context) (<-chan change, error) {
	resp, err := b.do(ctx, http.MethodGet, "/berth/v1/watch", nil) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		return nil, err
	}
	out := make(chan change, 1024)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		d := json.NewDecoder(resp.Body)
		for {
			var u struct {
				Kind   string
				Pod    struct{ Name string }
				Status *corev1.PodStatus
			}
			if d.Decode(&u) != nil {
				return
			}
			switch u.Kind {
			case "status":
				out <- change{name: u.Pod.Name, ready: isReady(u.Status), status: u.Status}
			case "gone":
				out <- change{name: u.Pod.Name, gone: true}
			}
		}
	}()
	return out, nil
}
