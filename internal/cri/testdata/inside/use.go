package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// use takes what its arguments say, KIND=AMOUNT, says so and stays:
//
//	memory=MEBIBYTES   touched
//	file=PATH:BYTES    written
//	sockets=COUNT      open
//	cpu=MILLISECONDS   of CPU time, used up
//	send=ADDR:COUNT    datagrams with 1000 bytes
//	burn=1             goes on using a CPU
func use(args []string) {
	var kept []byte
	var burn bool
	for _, arg := range args {
		kind, amount, _ := strings.Cut(arg, "=")
		i := strings.LastIndex(amount, ":")
		count := number(amount[i+1:])
		switch kind {
		case "memory":
			kept = bytes.Repeat([]byte{1}, count<<20)
		case "file":
			check(os.WriteFile(amount[:i], bytes.Repeat([]byte("x"), count), 0o644))
		case "sockets":
			for range count {
				_, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				check(err)
			}
		case "cpu":
			for cpuTime() < time.Duration(count)*time.Millisecond { // that is the use
			}
		case "send":
			send(amount[:i], count)
		case "burn":
			burn = true
		}
	}
	fmt.Println("used", len(kept))
	for burn { // that is the use
	}
	sleep()
	fmt.Println(len(kept)) // keeps it
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// send repeats what is refused: nobody need listen, and the next to send is told.
func send(addr string, count int) {
	c, err := net.Dial("udp", addr)
	check(err)
	defer c.Close()
	for sent := 0; sent < count; {
		if _, err := c.Write(make([]byte, 1000)); err == nil {
			sent++
		}
	}
}
