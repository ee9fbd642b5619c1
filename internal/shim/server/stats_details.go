package server

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// openFiles counts the open files of processes, and how many of them are sockets.
// A process that ended meanwhile has none.
func openFiles(pids []int) (all, sockets uint64) {
	var target [len("socket:")]byte
	for _, pid := range pids {
		dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(-1)
		all += uint64(len(names))
		for _, name := range names {
			// What does not fit is cut off.
			if n, err := unix.Readlinkat(int(dir.Fd()), name, target[:]); err == nil && string(target[:n]) == "socket:" {
				sockets++
			}
		}
		dir.Close()
	}
	return all, sockets
}

// softLimits reads the limits that a process has, without those that have no end.
func softLimits(pid int) []*shimpb.SoftLimit {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil
	}
	return parseSoftLimits(string(b))
}

// parseSoftLimits reads /proc/PID/limits, a table with columns of fixed width:
//
//	Limit                     Soft Limit           Hard Limit           Units
//	Max open files            1024                 524288               files
func parseSoftLimits(table string) (limits []*shimpb.SoftLimit) {
	header, rows, _ := strings.Cut(table, "\n")
	column := strings.Index(header, "Soft Limit")
	if column < 0 {
		return nil
	}
	for row := range strings.Lines(rows) {
		if len(row) <= column {
			continue
		}
		soft, _, _ := strings.Cut(row[column:], " ")
		if n, err := strconv.ParseUint(soft, 10, 64); err == nil {
			limits = append(limits, &shimpb.SoftLimit{Name: strings.TrimSpace(row[:column]), Value: n})
		}
	}
	return limits
}

// deviceUsage sums up what was read from and written to each device.
func deviceUsage(io cgroups.BlkioStats) []*shimpb.DeviceUsage {
	type number struct{ major, minor uint64 }
	devices := map[number]*shimpb.DeviceUsage{}
	add := func(entries []cgroups.BlkioStatEntry, read, write func(*shimpb.DeviceUsage) *uint64) {
		for _, e := range entries {
			n := number{e.Major, e.Minor}
			if devices[n] == nil {
				devices[n] = &shimpb.DeviceUsage{Major: e.Major, Minor: e.Minor}
			}
			// v1 also has sums and other ways to split them.
			switch e.Op {
			case "Read":
				*read(devices[n]) += e.Value
			case "Write":
				*write(devices[n]) += e.Value
			}
		}
	}
	add(io.IoServiceBytesRecursive,
		func(d *shimpb.DeviceUsage) *uint64 { return &d.ReadBytes },
		func(d *shimpb.DeviceUsage) *uint64 { return &d.WriteBytes })
	add(io.IoServicedRecursive,
		func(d *shimpb.DeviceUsage) *uint64 { return &d.Reads },
		func(d *shimpb.DeviceUsage) *uint64 { return &d.Writes })
	return slices.SortedFunc(maps.Values(devices), func(a, b *shimpb.DeviceUsage) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
}

func hugePageUsage(sizes map[string]cgroups.HugetlbStats) (list []*shimpb.HugePageUsage) {
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		list = append(list, &shimpb.HugePageUsage{Size: size, UsageBytes: sizes[size].Usage, PeakBytes: sizes[size].MaxUsage})
	}
	return list
}
