package cri

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// The kernel's real-time signals as C libraries number them: the first two
	// belong to the library.
	sigRTMin = 34
	sigRTMax = 64
	// criSignalPrefix comes before a signal's name in the CRI's enumeration.
	criSignalPrefix = "SIGNAL_"
)

// stopSignal is what asks a container to stop: the configured signal, else the
// image's, else SIGTERM.
func stopSignal(configured runtimeapi.Signal, image string) syscall.Signal {
	name := image
	if configured != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		name = criSignalName(configured)
	}
	sig, err := parseSignal(name)
	if err != nil {
		return syscall.SIGTERM // an image's nonsense must not make a container unstoppable
	}
	return sig
}

// criSignalName gives SIGRTMIN+3 for SIGNAL_SIGRTMINPLUS3.
func criSignalName(s runtimeapi.Signal) string {
	name := strings.TrimPrefix(s.String(), criSignalPrefix)
	name = strings.Replace(name, "RTMAXMINUS", "RTMAX-", 1)
	return strings.Replace(name, "RTMINPLUS", "RTMIN+", 1)
}

// parseSignal understands 15, TERM, SIGTERM, SIGRTMIN+3 and SIGRTMAX-2.
func parseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > sigRTMax {
			return 0, fmt.Errorf("signal %d is not in 1–%d", n, sigRTMax)
		}
		return syscall.Signal(n), nil
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	base, offset := sigRTMin, strings.TrimPrefix(name, "SIGRTMIN")
	if strings.HasPrefix(name, "SIGRTMAX") {
		base, offset = sigRTMax, strings.TrimPrefix(name, "SIGRTMAX")
	} else if !strings.HasPrefix(name, "SIGRTMIN") {
		return 0, fmt.Errorf("there is no signal %q", name)
	}
	if offset == "" {
		return syscall.Signal(base), nil
	}
	n, err := strconv.Atoi(offset)
	if err != nil || base+n < sigRTMin || base+n > sigRTMax {
		return 0, fmt.Errorf("there is no signal %q", name)
	}
	return syscall.Signal(base + n), nil
}

// criStopSignal is the stop signal as the CRI writes it in a status.
func criStopSignal(configured runtimeapi.Signal, image string) runtimeapi.Signal {
	if configured != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return configured
	}
	if s, ok := criSignals()[stopSignal(configured, image)]; ok {
		return s
	}
	return runtimeapi.Signal_SIGNAL_SIGTERM
}

// criSignals are the CRI's signals by number. It is computed once: each status
// of each container asks for it.
var criSignals = sync.OnceValue(func() map[syscall.Signal]runtimeapi.Signal {
	signals := make(map[syscall.Signal]runtimeapi.Signal, len(runtimeapi.Signal_name))
	for number := range runtimeapi.Signal_name {
		s := runtimeapi.Signal(number)
		if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT || isAlias(s) {
			continue
		}
		if n, err := parseSignal(criSignalName(s)); err == nil {
			signals[n] = s
		}
	}
	return signals
})

// isAlias reports whether a signal of the CRI is another name of one that is
// there too.
func isAlias(s runtimeapi.Signal) bool {
	switch s {
	case runtimeapi.Signal_SIGNAL_SIGCLD, runtimeapi.Signal_SIGNAL_SIGIOT, runtimeapi.Signal_SIGNAL_SIGPOLL:
		return true
	default:
		return false
	}
}
