package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func cat(p *program, args []string) error {
	if len(args) == 0 {
		args = []string{"-"}
	}
	var errs []error
	for _, name := range args {
		errs = append(errs, catOne(p, name))
	}
	return errors.Join(errs...)
}

func catOne(p *program, name string) error {
	if name == "-" {
		_, err := io.Copy(p.out, p.in)
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(p.out, f)
	return err
}

func writeFile(p *program, args []string) error {
	appending := false
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.BoolVar(&appending, "append", false, "") })
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return usageError{"want a file"}
	}
	how := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if appending {
		how = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(rest[0], how, 0o644)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		_, err = io.WriteString(f, strings.Join(rest[1:], " ")+"\n")
	} else {
		_, err = io.Copy(f, p.in)
	}
	return errors.Join(err, f.Close())
}

// test is test(1) as far as probes need it: 0 if true, 1 if false, 2 if the
// expression is wrong.
func test(_ *program, args []string) error {
	holds, err := evaluate(args)
	switch {
	case err != nil:
		return err
	case !holds:
		return exitCode(1)
	}
	return nil
}

func evaluate(args []string) (bool, error) {
	if len(args) > 1 && args[0] == "!" {
		holds, err := evaluate(args[1:])
		return !holds, err
	}
	switch len(args) {
	case 0:
		return false, nil
	case 1:
		return args[0] != "", nil
	case 2:
		return unary(args[0], args[1])
	case 3:
		switch args[1] {
		case "=", "==":
			return args[0] == args[2], nil
		case "!=":
			return args[0] != args[2], nil
		}
	}
	return false, usageError{fmt.Sprintf("cannot understand %q", strings.Join(args, " "))}
}

func unary(operator, operand string) (bool, error) {
	info, err := os.Stat(operand)
	exists := err == nil
	access := func(mode uint32) bool { return syscall.Access(operand, mode) == nil }
	switch operator {
	case "-e":
		return exists, nil
	case "-f":
		return exists && info.Mode().IsRegular(), nil
	case "-d":
		return exists && info.IsDir(), nil
	case "-s":
		return exists && info.Size() > 0, nil
	case "-L", "-h":
		link, err := os.Lstat(operand)
		return err == nil && link.Mode()&fs.ModeSymlink != 0, nil
	case "-S":
		return exists && info.Mode()&fs.ModeSocket != 0, nil
	case "-r":
		return access(4), nil
	case "-w":
		return access(2), nil
	case "-x":
		return access(1), nil
	case "-n":
		return operand != "", nil
	case "-z":
		return operand == "", nil
	}
	return false, usageError{fmt.Sprintf("there is no test %q", operator)}
}

func ls(p *program, args []string) error {
	var all, long bool
	rest, err := parse(args, func(fs *flag.FlagSet) {
		fs.BoolVar(&all, "a", false, "")
		fs.BoolVar(&long, "l", false, "")
	})
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		rest = []string{"."}
	}
	var errs []error
	for _, name := range rest {
		entries, err := os.ReadDir(name)
		if errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, p.entry(name, name, long))
			continue
		}
		errs = append(errs, err)
		for _, e := range entries {
			if all || !strings.HasPrefix(e.Name(), ".") {
				errs = append(errs, p.entry(filepath.Join(name, e.Name()), e.Name(), long))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *program) entry(path, shown string, long bool) error {
	if !long {
		fmt.Fprintln(p.out, shown)
		return nil
	}
	text, err := describe(path)
	if err != nil {
		return err
	}
	if to, err := os.Readlink(path); err == nil {
		shown += " -> " + to
	}
	fmt.Fprintln(p.out, text, shown)
	return nil
}

// describe gives mode, octal mode, owner and size, without following links.
func describe(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%s %04o %d:%d %d", info.Mode(), st.Mode&0o7777, st.Uid, st.Gid, info.Size()), nil
}

func stat(p *program, args []string) error {
	if len(args) == 0 {
		return usageError{"want a file"}
	}
	var errs []error
	for _, name := range args {
		text, err := describe(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintln(p.out, text, name)
	}
	return errors.Join(errs...)
}

func touch(_ *program, args []string) error {
	if len(args) == 0 {
		return usageError{"want a file"}
	}
	var errs []error
	for _, name := range args {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		now := time.Now()
		errs = append(errs, f.Close(), os.Chtimes(name, now, now))
	}
	return errors.Join(errs...)
}

func rm(_ *program, args []string) error {
	var recursive, force bool
	rest, err := parse(args, func(fs *flag.FlagSet) {
		fs.BoolVar(&recursive, "r", false, "")
		fs.BoolVar(&force, "f", false, "")
		fs.BoolFunc("rf", "", func(string) error { recursive, force = true, true; return nil })
	})
	if err != nil {
		return err
	}
	if len(rest) == 0 && !force {
		return usageError{"want a file"}
	}
	var errs []error
	for _, name := range rest {
		err := os.Remove(name)
		if recursive {
			err = os.RemoveAll(name)
		}
		if force && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func mkdir(_ *program, args []string) error {
	parents := false
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.BoolVar(&parents, "p", false, "") })
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return usageError{"want a folder"}
	}
	var errs []error
	for _, name := range rest {
		if parents {
			errs = append(errs, os.MkdirAll(name, 0o755))
		} else {
			errs = append(errs, os.Mkdir(name, 0o755))
		}
	}
	return errors.Join(errs...)
}

// mount needs a privileged container.
func mount(_ *program, args []string) error {
	if len(args) != 2 {
		return usageError{"want a kind of file system and a folder"}
	}
	if err := syscall.Mount(args[0], args[1], args[0], 0, ""); err != nil {
		return &os.PathError{Op: "mount " + args[0] + " on", Path: args[1], Err: err}
	}
	return nil
}
