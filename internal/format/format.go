// Package format puts the names and sizes of things into words for people: in
// logs, tables and error messages. It is pure and imports nothing of ours.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod names a pod unmistakably: name_namespace(uid).
func Pod(pod metav1.Object) string {
	return PodDesc(pod.GetName(), pod.GetNamespace(), string(pod.GetUID()))
}

// PodDesc is Pod for those who have only the parts.
func PodDesc(name, namespace, uid string) string {
	return name + "_" + namespace + "(" + uid + ")"
}

// Container names a container of a pod: container@name_namespace(uid).
func Container(pod metav1.Object, container string) string {
	return container + "@" + Pod(pod)
}

// Duration shows a duration in two units at most, as kubectl shows ages: 7s,
// 4m12s, 15m, 3h5m, 26h, 9d, 2y31d. Below two seconds it shows milliseconds,
// below one microseconds. A negative one has a minus sign.
func Duration(d time.Duration) string {
	if d < 0 {
		if d == -1<<63 {
			d++
		}
		return "-" + Duration(-d)
	}
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	switch {
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 2*time.Second:
		if d%time.Second == 0 {
			return two(d, time.Second, "s", 0, "")
		}
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return two(d, time.Second, "s", 0, "")
	case d < 10*time.Minute:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < 3*time.Hour:
		return two(d, time.Minute, "m", 0, "")
	case d < 8*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return two(d, time.Hour, "h", 0, "")
	case d < 8*day:
		return two(d, day, "d", time.Hour, "h")
	case d < 2*year:
		return two(d, day, "d", 0, "")
	case d < 8*year:
		return two(d, year, "y", day, "d")
	}
	return two(d, year, "y", 0, "")
}

// two shows d in a large unit and, where small is not 0, its rest in a small one.
func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	s := strconv.FormatInt(int64(d/large), 10) + largeName
	if small == 0 || d%large < small {
		return s
	}
	return s + strconv.FormatInt(int64(d%large/small), 10) + smallName
}

// Bytes shows a number of bytes in binary units with three digits: 512 B,
// 1.5 KiB, 33.1 MiB, 812 MiB.
func Bytes(n int64) string {
	if n < 0 {
		if n == -1<<63 {
			n++
		}
		return "-" + Bytes(-n)
	}
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v := float64(n) / 1024
	i := 0
	// 999.5 would be shown with four digits.
	for v >= 999.5 && i < len(units)-1 {
		v /= 1024
		i++
	}
	digits := 2
	switch {
	case v >= 99.95:
		digits = 0
	case v >= 9.995:
		digits = 1
	}
	number := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		number = strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + units[i]
}

// Quantity shows an amount of a resource: cpu in cores (0.25, 2), memory and
// storage in bytes with units, all else as the API writes it.
func Quantity(name string, q resource.Quantity) string {
	switch {
	case name == "cpu":
		return strconv.FormatFloat(q.AsApproximateFloat64(), 'f', -1, 64)
	case name == "memory", strings.Contains(name, "storage"), strings.HasPrefix(name, "hugepages-"):
		return Bytes(q.Value())
	}
	return q.String()
}
