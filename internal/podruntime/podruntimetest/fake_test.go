package podruntimetest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/fault"
	"github.com/berth-run/berth/internal/lifecycle"
)

// The fake keeps the contract of real runtimes, as far as it has what is asked.
func TestFakeKeepsTheContract(t *testing.T) {
	Run(t, func(t *testing.T) Target {
		fake := NewFake(fault.NewInjector(time.Now(), nil))
		if strings.Contains(t.Name(), "stubborn") || strings.Contains(t.Name(), "shortened") {
			fake.Linger = time.Hour
		}
		fake.Behave = func(pod *corev1.Pod, _ string, _ int) (time.Duration, int32) {
			args := pod.Spec.Containers[0].Args
			if args[0] != "exit" {
				return 0, 0
			}
			after, err := time.ParseDuration(args[3])
			if err != nil {
				t.Error(err)
			}
			return after, int32(args[1][0] - '0')
		}
		t.Cleanup(func() {
			for _, v := range fake.Violations() {
				t.Error(v)
			}
		})
		return Target{Runtime: fake, Image: "image"}
	})
}

func TestFakeMisbehavesAsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults, err := fault.ParseAll("fail(PrepareVolumes); slow(CreateSandbox, 1m); @10m runtime-gone(1m)")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		fake := NewFake(fault.NewInjector(began, faults))
		b := newBench(t, Target{Runtime: fake, Image: "image"})
		pod := b.pod("sleep")
		if _, err := b.do(pod, lifecycle.Action{Kind: lifecycle.PrepareVolumes}); err == nil {
			t.Error("no failure")
		}
		b.sandbox(pod)
		if took := time.Since(began); took < time.Minute {
			t.Errorf("the slow sandbox took %s", took)
		}
		time.Sleep(time.Until(began.Add(10 * time.Minute)))
		if _, err := fake.Observe(t.Context(), pod); err == nil {
			t.Error("observed a runtime that is gone")
		}
		time.Sleep(2 * time.Minute)
		fake.LoseSandbox(pod.UID)
		if o := b.observe(pod); len(o.Sandboxes) != 1 || o.Sandboxes[0].Ready {
			t.Errorf("the lost sandbox is seen as %+v", o.Sandboxes)
		}
	})
}
