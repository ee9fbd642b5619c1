package demo

import (
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// forever stands for a wait without end.
const forever = time.Duration(math.MaxInt64)

// parse reads flags, which may stand before, between and after the other
// arguments, and gives those.
func parse(args []string, define func(*flag.FlagSet)) (rest []string, err error) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	define(fs)
	for {
		if err := fs.Parse(args); err != nil {
			return nil, usageError{err.Error()}
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// duration is a flag value: like 1.5s, a number of seconds, or inf.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	*d = duration(v)
	return err
}

func parseDuration(text string) (time.Duration, error) {
	if text == "inf" || text == "infinity" {
		return forever, nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, usageError{fmt.Sprintf("%q is no duration (want 1.5s, 200ms, 3 or inf)", text)}
	}
	return d, nil
}

// oneDuration reads a command line that is one duration; without it, fallback.
func oneDuration(args []string, fallback time.Duration) (time.Duration, error) {
	switch {
	case len(args) == 1:
		return parseDuration(args[0])
	case len(args) == 0 && fallback >= 0:
		return fallback, nil
	default:
		return 0, usageError{"want one duration"}
	}
}

// oneNumber reads a count that must not be negative.
func oneNumber(args []string, what string) (int, error) {
	if len(args) != 1 {
		return 0, usageError{"want one number: " + what}
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 {
		return 0, usageError{fmt.Sprintf("%q is no number: want %s", args[0], what)}
	}
	return n, nil
}

// list collects the values of a repeated flag.
type list []string

func (l *list) String() string { return fmt.Sprint(*l) }

func (l *list) Set(text string) error {
	*l = append(*l, text)
	return nil
}
