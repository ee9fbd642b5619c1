// Package fault is the vocabulary of things that go wrong in tests and in the
// simulation: each fault prints as one word and parses back, so that a failing
// run can show its faults and be run again with them.
//
//	fail(StartContainer, app, 3)   the next three starts of app fail
//	slow(PullImage, 90s)           every pull takes 90 s longer
//	late-effect(StartContainer)    a cancelled start takes effect all the same
//	lose-event                     one runtime event is not delivered
//	sandbox-lost                   a sandbox dies with all that is in it
//	exit(app, 137)                 container app ends with code 137
//	kill-agent                     the agent dies and starts again
//	clock+1h, clock-1h             the wall clock jumps
//	disk-full(10s)                 nothing can be written for 10 s
//	runtime-gone(2m)               the runtime does not answer for 2 min
//	api-409, api-gone(30s)         the API refuses a write; does not answer
//
// A fault may be put off: "@30s kill-agent" happens 30 s after the run began.
// The package knows nothing of who injects its faults; see Injector.
package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/lifecycle"
)

// Kind is the word of a fault.
type Kind string

// The kinds of faults.
const (
	Fail        Kind = "fail"
	Slow        Kind = "slow"
	LateEffect  Kind = "late-effect"
	LoseEvent   Kind = "lose-event"
	SandboxLost Kind = "sandbox-lost"
	Exit        Kind = "exit"
	KillAgent   Kind = "kill-agent"
	Clock       Kind = "clock"
	DiskFull    Kind = "disk-full"
	RuntimeGone Kind = "runtime-gone"
	APIConflict Kind = "api-409"
	APIGone     Kind = "api-gone"
)

// Fault is one thing that goes wrong.
type Fault struct {
	// After is how long after the beginning of the run the fault comes.
	After time.Duration
	Kind  Kind
	// Action is which action Fail, Slow and LateEffect concern.
	Action lifecycle.ActionKind
	// Container narrows Fail, Slow and LateEffect to one container and says
	// which one Exit ends; empty: any.
	Container string
	// Times is how often Fail, LateEffect, LoseEvent and APIConflict strike;
	// at least 1.
	Times int
	// For is how long Slow delays, how long DiskFull, RuntimeGone and APIGone
	// last (zero: to the end of the run), and how far Clock jumps.
	For time.Duration
	// Code is the exit code of Exit.
	Code int32
}

// forms says which arguments each kind takes: a action, c container
// (optional), n times (optional), d duration, D duration (optional), x exit
// code.
var forms = map[Kind]string{
	Fail: "acn", Slow: "acd", LateEffect: "acn", LoseEvent: "n", SandboxLost: "", Exit: "cx",
	KillAgent: "", DiskFull: "D", RuntimeGone: "D", APIConflict: "n", APIGone: "D",
}

// known lists the actions that faults can name.
func known(name string) (lifecycle.ActionKind, bool) {
	switch kind := lifecycle.ActionKind(name); kind {
	case lifecycle.PrepareVolumes, lifecycle.CreateSandbox, lifecycle.PullImage, lifecycle.StartContainer,
		lifecycle.RunPostStart, lifecycle.RunPreStop, lifecycle.StopContainer, lifecycle.RemoveContainer,
		lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.RemovePod:
		return kind, true
	default:
		return "", false
	}
}

// String prints the fault as Parse reads it.
func (f Fault) String() string {
	var b strings.Builder
	if f.After != 0 {
		fmt.Fprintf(&b, "@%s ", short(f.After))
	}
	b.WriteString(string(f.Kind))
	if f.Kind == Clock {
		if f.For >= 0 {
			b.WriteByte('+')
		}
		b.WriteString(short(f.For))
		return b.String()
	}
	var args []string
	for _, form := range forms[f.Kind] {
		switch form {
		case 'a':
			args = append(args, string(f.Action))
		case 'c':
			if f.Container != "" {
				args = append(args, f.Container)
			}
		case 'n':
			if f.Times > 1 {
				args = append(args, strconv.Itoa(f.Times))
			}
		case 'd':
			args = append(args, short(f.For))
		case 'D':
			if f.For != 0 {
				args = append(args, short(f.For))
			}
		case 'x':
			args = append(args, strconv.Itoa(int(f.Code)))
		}
	}
	if len(args) > 0 {
		fmt.Fprintf(&b, "(%s)", strings.Join(args, ", "))
	}
	return b.String()
}

// short prints a duration without its zero parts: 2m, not 2m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Format prints faults as ParseAll reads them.
func Format(faults []Fault) string {
	words := make([]string, len(faults))
	for i, f := range faults {
		words[i] = f.String()
	}
	return strings.Join(words, "; ")
}

// ParseAll reads faults separated by semicolons or line ends.
func ParseAll(text string) ([]Fault, error) {
	var faults []Fault
	var errs []error
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		f, err := Parse(word)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		faults = append(faults, f)
	}
	return faults, errors.Join(errs...)
}

// Parse reads one fault.
func Parse(text string) (Fault, error) {
	var f Fault
	rest := strings.TrimSpace(text)
	if after, ok := strings.CutPrefix(rest, "@"); ok {
		at, word, _ := strings.Cut(after, " ")
		d, err := time.ParseDuration(at)
		if err != nil || d < 0 {
			return f, fmt.Errorf("cannot read fault %q: %q is no time; use for example @30s", text, at)
		}
		f.After, rest = d, strings.TrimSpace(word)
	}
	if jump, ok := strings.CutPrefix(rest, string(Clock)); ok {
		d, err := time.ParseDuration(jump)
		if err != nil || (jump[0] != '+' && jump[0] != '-') {
			return f, fmt.Errorf("cannot read fault %q: use clock+DURATION or clock-DURATION", text)
		}
		f.Kind, f.For = Clock, d
		return f, nil
	}
	word, list, hasArgs := strings.Cut(rest, "(")
	f.Kind = Kind(word)
	form, ok := forms[f.Kind]
	if !ok {
		return f, fmt.Errorf("cannot read fault %q: there is no fault %q", text, word)
	}
	var args []string
	if hasArgs {
		if list, ok = strings.CutSuffix(list, ")"); !ok {
			return f, fmt.Errorf("cannot read fault %q: the closing parenthesis is missing", text)
		}
		for arg := range strings.SplitSeq(list, ",") {
			args = append(args, strings.TrimSpace(arg))
		}
	}
	if err := f.fill(form, args); err != nil {
		return f, fmt.Errorf("cannot read fault %q: %w", text, err)
	}
	return f, nil
}

// fill takes args in the order of form.
func (f *Fault) fill(form string, args []string) error {
	if strings.Contains(form, "n") {
		f.Times = 1
	}
	next := func() string {
		if len(args) == 0 {
			return ""
		}
		return args[0]
	}
	for _, kind := range form {
		arg := next()
		switch kind {
		case 'a':
			action, ok := known(arg)
			if !ok {
				return fmt.Errorf("%q is no action; use for example StartContainer", arg)
			}
			f.Action = action
		case 'c':
			// A container's name can start with a digit, but a whole number or
			// duration in its place is the next argument.
			if arg == "" || isNumber(arg) {
				continue
			}
			f.Container = arg
		case 'n':
			if arg == "" {
				continue
			}
			n, err := strconv.Atoi(arg)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no count; use 1 or more", arg)
			}
			f.Times = n
		case 'x':
			n, err := strconv.ParseInt(arg, 10, 32)
			if err != nil {
				return fmt.Errorf("%q is no exit code", arg)
			}
			f.Code = int32(n)
		case 'd', 'D':
			if arg == "" && kind == 'D' {
				continue
			}
			d, err := time.ParseDuration(arg)
			if err != nil || d < 0 || (d == 0 && kind == 'D') {
				return fmt.Errorf("%q is no duration; use for example 90s", arg)
			}
			f.For = d
		}
		if len(args) > 0 {
			args = args[1:]
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("there is no place for %q", args[0])
	}
	return nil
}

func isNumber(arg string) bool {
	if _, err := strconv.Atoi(arg); err == nil {
		return true
	}
	_, err := time.ParseDuration(arg)
	return err == nil
}
