package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal ends for its container (SIGHUP) when its last master is closed. So
// that killing the shim does not do that, a holder process, which does nothing,
// has the master open, too; the next shim takes it from there.

// holderFD is the terminal's number in the holder.
const holderFD = 3

// takeTerminal takes over the terminal of the container's first process.
func (c *container) takeTerminal(tty *os.File) error {
	defer tty.Close()
	if err := c.startHolder(tty); err != nil {
		return err
	}
	raw, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	var useErr error
	if err := raw.Control(func(fd uintptr) { useErr = c.useTerminal(int(fd)) }); err != nil {
		return err
	}
	return useErr
}

// useTerminal reads and writes the terminal behind fd, which stays the caller's.
func (c *container) useTerminal(fd int) error {
	in, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	c.stdinMu.Lock()
	c.stdin = os.NewFile(uintptr(in), "terminal")
	c.stdinMu.Unlock()
	out, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	c.streams = append(c.streams, c.srv.openStream(c.dir, "stdout", out, c.log, &c.to))
	return c.followStreams()
}

// startHolder starts the process that keeps the terminal open.
func (c *container) startHolder(tty *os.File) error {
	s := c.srv
	cmd := exec.Command("/proc/self/exe", "hold")
	cmd.Args[0] = s.cfg.Name
	cmd.ExtraFiles = []*os.File{tty}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.starting.RLock()
	defer s.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot keep terminal of container %q: %w", c.id, err)
	}
	pid := cmd.Process.Pid
	// The shim reaps it itself.
	_ = cmd.Process.Release()
	p := &process{pid: pid, child: true}
	st, err := readStat(pid)
	if err == nil {
		p.ticks = st.ticks
		p.pidfd, err = openPidfd(pid, st.ticks)
	}
	if err == nil {
		err = s.watchProcess(p, nil)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // a child of ours, not yet reaped: nobody else has its pid
		return err
	}
	c.holder = p
	return c.change(func(st *state) { st.HolderPID, st.HolderTicks = p.pid, p.ticks })
}

// adoptTerminal takes the terminal from the holder that a former shim started, or
// from k.
func (c *container) adoptTerminal(st state, k *kept) error {
	tty := k.Stdout
	err := c.adoptHolder(st, func(pidfd int) (err error) {
		if tty < 0 {
			tty, err = unix.PidfdGetfd(pidfd, holderFD, 0)
			k.Stdout = tty // the caller closes it
		}
		return err
	})
	if tty < 0 {
		return fmt.Errorf("cannot adopt terminal of container %q: %w", c.id, err)
	}
	return errors.Join(err, c.useTerminal(tty))
}

// adoptHolder watches the process that holds the terminal. It gives take a
// descriptor of it before.
func (c *container) adoptHolder(st state, take func(pidfd int) error) error {
	if st.HolderPID == 0 {
		return errors.New("nobody holds it")
	}
	pidfd, err := openPidfd(st.HolderPID, st.HolderTicks)
	if err != nil {
		return err
	}
	if err := take(pidfd); err != nil {
		unix.Close(pidfd)
		return err
	}
	p := &process{pid: st.HolderPID, ticks: st.HolderTicks, pidfd: pidfd}
	p.findParent()
	if err := c.srv.watchProcess(p, nil); err != nil {
		unix.Close(pidfd)
		return err
	}
	c.holder = p
	return nil
}

// Hold does nothing until it is killed. It is the whole of `berth-shim hold`.
func Hold() {
	for {
		_ = unix.Pause()
	}
}
