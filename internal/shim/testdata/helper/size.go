package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

func size() string {
	var ws struct{ rows, cols, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 1, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&ws)))
	if errno != 0 {
		return errno.Error()
	}
	return fmt.Sprintf("%dx%d", ws.cols, ws.rows)
}
