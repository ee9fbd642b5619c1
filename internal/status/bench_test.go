package status

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// running is the status of a pod with two containers.
func running(i int) corev1.PodStatus {
	start := at(1)
	return corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &start, PodIP: "10.88.0.2", Reason: fmt.Sprint(i),
		Conditions:        conditions("PodReadyToStartContainers=True@1 Initialized=True@1 Ready=True@2 ContainersReady=True@2 PodScheduled=True@1"),
		ContainerStatuses: []corev1.ContainerStatus{container("app", "a", 0, "run", ""), container("web", "b", 1, "run", "end(a@1)")},
	}
}

// BenchmarkSet is one change of one of a thousand pods, with two subscribers.
func BenchmarkSet(b *testing.B) {
	m, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	pods := make([]*corev1.Pod, 1000)
	for i := range pods {
		pods[i] = podOf("web", fmt.Sprint(i))
	}
	for range 2 {
		updates := m.Subscribe(b.Context())
		go func() {
			for range updates { // they only have to be read
			}
		}()
	}
	statuses := []corev1.PodStatus{running(1), running(2)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Set(pods[i%len(pods)], statuses[i/len(pods)%2])
	}
}

// BenchmarkSetUnchanged is the same without a change.
func BenchmarkSetUnchanged(b *testing.B) {
	m, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	pod, status := podOf("web", "1"), running(1)
	b.ReportAllocs()
	for b.Loop() {
		m.Set(pod, status)
	}
}
