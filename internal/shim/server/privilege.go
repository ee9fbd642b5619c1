package server

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

const (
	// capSysResource is the number of the capability without which neither a
	// lower oom_score_adj nor a higher hard limit can be set.
	capSysResource = 24
	// capSysPtrace is that of the one without which other users' processes don't
	// show how they ended.
	capSysPtrace = 19
)

// limits is what this process may grant to containers. Some machines (VMs,
// nested containers) lack CAP_SYS_RESOURCE; a container that asks for more gets
// as much as there is, and one warning is logged.
type limits struct {
	log        *slog.Logger
	restricted bool
	oomScore   int // lowest oom_score_adj that can be given, if restricted
	warn       sync.Once
}

func readLimits(log *slog.Logger) (*limits, error) {
	l := &limits{log: log}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	caps, err := effectiveCaps(string(status))
	if err != nil {
		return nil, err
	}
	l.restricted = caps&(1<<capSysResource) == 0
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil, err
	}
	l.oomScore, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return l, err
}

// effectiveCaps finds the effective capabilities in /proc/PID/status.
func effectiveCaps(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, fmt.Errorf("no CapEff in process status")
}

func (l *limits) warnOnce(what string) {
	l.warn.Do(func() {
		l.log.Warn("CAP_SYS_RESOURCE is missing: containers get the lowest oom_score_adj and the highest limits that this process may give", "first", what)
	})
}

// oomScoreAdj returns the value to set for one asked for; nil stays nil.
func (l *limits) oomScoreAdj(want *int) *int {
	if want == nil || !l.restricted || *want >= l.oomScore {
		return want
	}
	l.warnOnce(fmt.Sprintf("oom_score_adj %d instead of %d", l.oomScore, *want))
	lowest := l.oomScore
	return &lowest
}

// rlimits returns the limits to set for those asked for.
func (l *limits) rlimits(want []configs.Rlimit) ([]configs.Rlimit, error) {
	if !l.restricted {
		return want, nil
	}
	got := make([]configs.Rlimit, 0, len(want))
	for _, r := range want {
		var own unix.Rlimit
		if err := unix.Prlimit(0, r.Type, nil, &own); err != nil {
			return nil, fmt.Errorf("cannot read resource limit %d: %w", r.Type, err)
		}
		if r.Hard > own.Max {
			l.warnOnce(fmt.Sprintf("resource limit %d of %d instead of %d", r.Type, own.Max, r.Hard))
			r.Hard, r.Soft = own.Max, min(r.Soft, own.Max)
		}
		got = append(got, r)
	}
	return got, nil
}
