package db

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// holder names the process that has the file locked, for an error text; empty
// if the kernel does not tell.
func holder(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer locks.Close()
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", stat.Ino)) {
			continue
		}
		return fmt.Sprintf(" (pid %s)", fields[4])
	}
	return ""
}
