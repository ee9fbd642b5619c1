package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// proc names processes by their command line.
type proc struct {
	name    string
	pattern *regexp.Regexp
}

func parseProcs(text string) ([]proc, error) {
	var procs []proc
	for word := range strings.SplitSeq(text, ",") {
		if word == "" {
			continue
		}
		name, pattern, ok := strings.Cut(word, "=")
		re, err := regexp.Compile(pattern)
		if !ok {
			return nil, fmt.Errorf("-procs: %q is not NAME=REGEXP", word)
		}
		if err != nil {
			return nil, fmt.Errorf("-procs: %w", err)
		}
		procs = append(procs, proc{name, re})
	}
	return procs, nil
}

// use is what processes take.
type use struct {
	Processes  int     `json:"processes"`
	PSSMiB     float64 `json:"pss_mib"`
	AnonMiB    float64 `json:"anonymous_mib"`
	CPUs       float64 `json:"cores"`
	cpuSeconds float64
}

// settle is how long after a burst the watching begins.
const settle = 5 * time.Second

// footprint watches processes for a while: memory at its end, CPU over it.
func footprint(procs []proc, window time.Duration) (map[string]*use, error) {
	time.Sleep(settle)
	before, err := sample(procs)
	if err != nil {
		return nil, err
	}
	time.Sleep(window)
	after, err := sample(procs)
	if err != nil {
		return nil, err
	}
	total := &use{}
	for name, u := range after {
		u.CPUs = (u.cpuSeconds - before[name].cpuSeconds) / window.Seconds()
		total.Processes += u.Processes
		total.PSSMiB += u.PSSMiB
		total.AnonMiB += u.AnonMiB
		total.CPUs += u.CPUs
	}
	after["total"] = total
	return after, nil
}

func sample(procs []proc) (map[string]*use, error) {
	out := map[string]*use{}
	for _, p := range procs {
		out[p.name] = &use{}
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	self := filepath.Join("/proc", strconv.Itoa(os.Getpid())) // its arguments hold the patterns
	for _, dir := range dirs {
		if dir == self {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(cmd) == 0 {
			continue // it has ended, or is the kernel's
		}
		line := strings.ReplaceAll(string(cmd), "\x00", " ")
		for _, p := range procs {
			if p.pattern.MatchString(line) {
				out[p.name].add(dir)
				break
			}
		}
	}
	return out, nil
}

// clockTick is USER_HZ, the unit of CPU times in /proc.
const clockTick = 100

func (u *use) add(dir string) {
	u.Processes++
	if rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup")); err == nil {
		for line := range strings.Lines(string(rollup)) {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			kb, _ := strconv.ParseFloat(f[1], 64)
			switch f[0] {
			case "Pss:":
				u.PSSMiB += kb / 1024
			case "Pss_Anon:":
				u.AnonMiB += kb / 1024
			}
		}
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	if f := strings.Fields(rest); ok && len(f) > 12 {
		user, _ := strconv.ParseFloat(f[11], 64)
		system, _ := strconv.ParseFloat(f[12], 64)
		u.cpuSeconds += (user + system) / clockTick
	}
}
