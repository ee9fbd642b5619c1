package demo

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

// exitWith ends with a code, at once or later.
func exitWith(p *program, args []string) error {
	var after duration
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.Var(&after, "after", "") })
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError{"want one exit code"}
	}
	code, err := strconv.Atoi(rest[0])
	if err != nil || code < 0 || code > 255 {
		return usageError{fmt.Sprintf("%q is no exit code (0-255)", rest[0])}
	}
	if p.wait(time.Duration(after)) && after > 0 {
		return terminated
	}
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

func crashAfter(p *program, args []string) error {
	d, err := oneDuration(args, -1)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "crashing in %v\n", d)
	if p.wait(d) {
		return terminated
	}
	return errors.New("crashed, as asked")
}

func sleep(p *program, args []string) error {
	d, err := oneDuration(args, forever)
	if err != nil {
		return err
	}
	p.wait(d)
	return nil
}

func ignoreTerm(p *program, args []string) error {
	d, err := oneDuration(args, forever)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, "ignoring SIGTERM")
	began := time.Now()
	if d == forever {
		<-p.term
		fmt.Fprintln(p.out, "SIGTERM ignored")
		select {}
	}
	if p.wait(d) {
		fmt.Fprintln(p.out, "SIGTERM ignored")
		time.Sleep(d - time.Since(began))
	}
	return nil
}

func termDelay(p *program, args []string) error {
	d, err := oneDuration(args, -1)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, "waiting for SIGTERM")
	<-p.term
	fmt.Fprintf(p.out, "SIGTERM, ending in %v\n", d)
	time.Sleep(d)
	return nil
}

// waitFile looks for a file ten times a second: it works on every filesystem.
func waitFile(p *program, args []string) error {
	timeout := duration(forever)
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.Var(&timeout, "timeout", "") })
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError{"want one file"}
	}
	for began := time.Now(); ; {
		if _, err := os.Stat(rest[0]); err == nil {
			return nil
		}
		if time.Since(began) >= time.Duration(timeout) {
			return fmt.Errorf("%s is not there after %v", rest[0], time.Duration(timeout))
		}
		if p.wait(100 * time.Millisecond) {
			return terminated
		}
	}
}
