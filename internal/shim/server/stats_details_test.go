package server

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"google.golang.org/protobuf/proto"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

func TestSoftLimitsAreThoseOfTheTable(t *testing.T) {
	table := `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max stack size            8388608              unlimited            bytes     
Max open files            1024                 524288               files     
Max nice priority         0                    0                    
`
	var got []string
	for _, l := range parseSoftLimits(table) {
		got = append(got, fmt.Sprintf("%s=%d", l.Name, l.Value))
	}
	if s := strings.Join(got, ", "); s != "Max stack size=8388608, Max open files=1024, Max nice priority=0" {
		t.Errorf("%s", s)
	}
	if got := parseSoftLimits("what is this"); got != nil {
		t.Errorf("%v", got)
	}
}

// The kernel's own table is understood.
func TestSoftLimitsOfThisProcess(t *testing.T) {
	for _, l := range softLimits(os.Getpid()) {
		if l.Name == "Max open files" && l.Value > 0 {
			return
		}
	}
	t.Errorf("%v", softLimits(os.Getpid()))
}

func TestOpenFilesAndSockets(t *testing.T) {
	count := func() (all, sockets uint64) { return openFiles([]int{os.Getpid(), -1}) }
	all, sockets := count()
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	// Go's poller may have come with the first one.
	if nowAll, nowSockets := count(); nowSockets != sockets+3 || nowAll < all+4 || nowAll > all+6 {
		t.Errorf("%d files with %d sockets, then %d with %d", all, sockets, nowAll, nowSockets)
	}
}

func TestDeviceUsageIsSummedUp(t *testing.T) {
	entry := func(minor uint64, op string, n uint64) cgroups.BlkioStatEntry {
		return cgroups.BlkioStatEntry{Major: 8, Minor: minor, Op: op, Value: n}
	}
	got := deviceUsage(cgroups.BlkioStats{
		IoServiceBytesRecursive: []cgroups.BlkioStatEntry{
			entry(16, "Read", 1), entry(0, "Read", 2), entry(0, "Write", 3), entry(0, "Sync", 100), entry(0, "Total", 200),
		},
		IoServicedRecursive: []cgroups.BlkioStatEntry{entry(0, "Read", 4), entry(0, "Write", 5)},
	})
	want := []*shimpb.DeviceUsage{
		{Major: 8, Minor: 0, ReadBytes: 2, WriteBytes: 3, Reads: 4, Writes: 5},
		{Major: 8, Minor: 16, ReadBytes: 1},
	}
	if len(got) != len(want) || !proto.Equal(got[0], want[0]) || !proto.Equal(got[1], want[1]) {
		t.Errorf("%v", got)
	}
}

// v1 names what is below the group as well, v2 has nothing else; a limit of
// memory and swap together is one of swap alone.
func TestMemoryOfBothVersions(t *testing.T) {
	v1 := cgroups.MemoryStats{
		Usage:     cgroups.MemoryData{Usage: 1000, MaxUsage: 2000, Limit: 5000, Failcnt: 7},
		SwapUsage: cgroups.MemoryData{Limit: 6000},
		Stats: map[string]uint64{
			"rss": 1, "total_rss": 10, "total_cache": 11, "total_mapped_file": 12, "total_active_file": 13, "total_inactive_file": 14,
			"pgfault": 15, "total_pgfault": 16, "pgmajfault": 17, "total_pgmajfault": 18, "total_swap": 100,
		},
		KernelUsage: cgroups.MemoryData{Usage: 19},
	}
	v2 := cgroups.MemoryStats{
		Usage:         cgroups.MemoryData{Usage: 1000, MaxUsage: 2000, Limit: 5000},
		SwapOnlyUsage: cgroups.MemoryData{Usage: 100, Limit: 1000},
		Stats: map[string]uint64{
			"anon": 10, "file": 11, "file_mapped": 12, "active_file": 13, "inactive_file": 14,
			"pgfault": 16, "pgmajfault": 18, "kernel_stack": 4, "slab": 15,
		},
	}
	want := &shimpb.StatsResponse{
		MemoryUsageBytes: 1000, MemoryPeakBytes: 2000, MemoryLimitBytes: 5000, MemoryWorkingSetBytes: 986,
		MemoryRssBytes: 10, MemoryCacheBytes: 11, MemoryMappedBytes: 12, MemoryActiveFileBytes: 13, MemoryInactiveFileBytes: 14,
		MemoryKernelBytes: 19, PageFaults: 16, MajorPageFaults: 18,
		SwapUsageBytes: proto.Uint64(100), SwapLimitBytes: proto.Uint64(1000),
	}
	for name, c := range map[string]struct {
		stats                cgroups.MemoryStats
		hits, faults, majors uint64
	}{"v1": {v1, 7, 15, 17}, "v2": {v2, 0, 16, 18}} {
		var got shimpb.StatsResponse
		setMemory(&got, c.stats)
		want := proto.CloneOf(want)
		want.MemoryLimitHits, want.OwnPageFaults, want.OwnMajorPageFaults = c.hits, c.faults, c.majors
		if !proto.Equal(&got, want) {
			t.Errorf("%s: %v\nwant %v", name, &got, want)
		}
	}
}

// What older peers say and hear is a part of what newer ones do.
func TestStatsRequestIsOnceAContainerRequest(t *testing.T) {
	b, err := proto.Marshal(&shimpb.ContainerRequest{Id: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var newer shimpb.StatsRequest
	if err := proto.Unmarshal(b, &newer); err != nil || !proto.Equal(&newer, &shimpb.StatsRequest{Id: "a"}) {
		t.Errorf("%v, %v", &newer, err)
	}
	if b, err = proto.Marshal(&shimpb.StatsRequest{Id: "a", Detailed: true}); err != nil {
		t.Fatal(err)
	}
	var older shimpb.ContainerRequest
	if err := proto.Unmarshal(b, &older); err != nil || older.GetId() != "a" {
		t.Errorf("%v, %v", &older, err)
	}
}
