package format

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "6f1c"}}
	if got, want := Pod(pod), "web_default(6f1c)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := Container(pod, "app"), "app@web_default(6f1c)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDuration(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0:                                  "0s",
		900:                                "0µs",
		15 * time.Microsecond:              "15µs",
		12 * time.Millisecond:              "12ms",
		time.Second:                        "1s",
		1500 * time.Millisecond:            "1500ms",
		7*time.Second + 900*1000*1000:      "7s",
		119 * time.Second:                  "119s",
		2 * time.Minute:                    "2m",
		4*time.Minute + 12*time.Second:     "4m12s",
		15*time.Minute + 12*time.Second:    "15m",
		3*time.Hour + 5*time.Minute:        "3h5m",
		26*time.Hour + 5*time.Minute:       "26h",
		2*day + 5*time.Hour:                "2d5h",
		9*day + 5*time.Hour:                "9d",
		2*year + 31*day:                    "2y31d",
		9 * year:                           "9y",
		-4*time.Minute - 12*time.Second:    "-4m12s",
		time.Duration(math.MinInt64):       "-292y",
		8*time.Hour + 59*time.Minute + 999: "8h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 512: "512 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1300: "1.27 KiB",
		34_700_000: "33.1 MiB", 812 << 20: "812 MiB", 1023 << 10: "1 MiB", 1<<20 - 1: "1 MiB",
		10 << 30: "10 GiB", math.MaxInt64: "8 EiB", -1536: "-1.5 KiB", math.MinInt64: "-8 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range [][3]string{
		{"cpu", "250m", "0.25"}, {"cpu", "2", "2"}, {"memory", "128Mi", "128 MiB"}, {"memory", "1G", "954 MiB"},
		{"ephemeral-storage", "1Gi", "1 GiB"}, {"hugepages-2Mi", "4Mi", "4 MiB"}, {"example.com/gpu", "2", "2"},
	} {
		if got := Quantity(c[0], resource.MustParse(c[1])); got != c[2] {
			t.Errorf("Quantity(%s %s) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
