package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
)

func echo(p *program, args []string) error {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		end, args = "", args[1:]
	}
	_, err := fmt.Fprint(p.out, strings.Join(args, " "), end)
	return err
}

// printEnv prints all variables, or the values of those named; 1 if one of
// them is not set.
func printEnv(p *program, args []string) error {
	if len(args) == 0 {
		for _, kv := range sortedEnv() {
			fmt.Fprintln(p.out, kv)
		}
		return nil
	}
	for _, name := range args {
		value, ok := os.LookupEnv(name)
		if !ok {
			return exitCode(1)
		}
		fmt.Fprintln(p.out, value)
	}
	return nil
}

func sortedEnv() []string {
	env := os.Environ()
	slices.Sort(env)
	return env
}

func printHostname(p *program, _ []string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, name)
	return nil
}

func printID(p *program, _ []string) error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	if !slices.Contains(groups, os.Getegid()) {
		groups = append(groups, os.Getegid())
	}
	slices.Sort(groups)
	list := make([]string, len(groups))
	for i, g := range groups {
		list[i] = fmt.Sprint(g)
	}
	fmt.Fprintf(p.out, "uid=%d gid=%d groups=%s\n", os.Geteuid(), os.Getegid(), strings.Join(list, ","))
	return nil
}

// statusFields are the lines of /proc/self/status that say what a process may
// do.
var statusFields = []string{
	"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
}

func printCaps(p *program, _ []string) error {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		if slices.Contains(statusFields, name) {
			fmt.Fprintf(p.out, "%s: %s\n", name, strings.Join(strings.Fields(value), " "))
		}
	}
	return nil
}

func printMounts(p *program, _ []string) error { return catOne(p, "/proc/self/mountinfo") }

// resolv prints the resolver's configuration, or the addresses of a name.
func resolv(p *program, args []string) error {
	if len(args) == 0 {
		return catOne(p, "/etc/resolv.conf")
	}
	var errs []error
	for _, name := range args {
		addresses, err := net.DefaultResolver.LookupHost(context.Background(), name)
		errs = append(errs, err)
		for _, a := range addresses {
			fmt.Fprintln(p.out, a)
		}
	}
	return errors.Join(errs...)
}
