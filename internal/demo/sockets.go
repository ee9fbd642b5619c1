package demo

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sendTimeout bounds tcp-send and udp-send.
const sendTimeout = 5 * time.Second

func portFlag(args []string, fallback int) (int, error) {
	port := fallback
	rest, err := parse(args, func(fs *flag.FlagSet) { fs.IntVar(&port, "port", fallback, "") })
	if err == nil && len(rest) != 0 {
		err = usageError{fmt.Sprintf("what is %q?", rest[0])}
	}
	return port, err
}

// tcpListen sends back what comes, until the other side has finished.
func tcpListen(p *program, args []string) error {
	port, err := portFlag(args, 7000)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "listening on tcp %s\n", l.Addr())
	go func() {
		<-p.term
		_ = l.Close()
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			select {
			case <-p.term:
				return nil
			default:
				return err
			}
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func udpEcho(p *program, args []string) error {
	port, err := portFlag(args, 7000)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "listening on udp %s\n", conn.LocalAddr())
	go func() {
		<-p.term
		_ = conn.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			select {
			case <-p.term:
				return nil
			default:
				return err
			}
		}
		_, _ = conn.WriteTo(buf[:n], from) // a lost answer is UDP's way
	}
}

func tcpSend(p *program, args []string) error { return send(p, "tcp", args) }

func udpSend(p *program, args []string) error { return send(p, "udp", args) }

func send(p *program, network string, args []string) error {
	if len(args) == 0 {
		return usageError{"want an address like 127.0.0.1:7000"}
	}
	conn, err := net.DialTimeout(network, args[0], sendTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	text := strings.Join(args[1:], " ")
	if text == "" {
		return nil // that it can be reached was the question
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.CloseWrite(); err != nil {
			return err
		}
		_, err = io.Copy(p.out, conn)
	} else {
		buf := make([]byte, 64<<10)
		var n int
		if n, err = conn.Read(buf); err == nil {
			_, err = p.out.Write(buf[:n])
		}
	}
	fmt.Fprintln(p.out)
	return err
}

func httpGet(p *program, args []string) error {
	timeout := duration(5 * time.Second)
	var headers list
	insecure := false
	method := http.MethodGet
	rest, err := parse(args, func(fs *flag.FlagSet) {
		fs.Var(&timeout, "timeout", "")
		fs.Var(&headers, "header", "")
		fs.BoolVar(&insecure, "insecure", false, "")
		fs.StringVar(&method, "method", method, "")
	})
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return usageError{"want one URL"}
	}
	request, err := http.NewRequest(method, rest[0], nil)
	if err != nil {
		return err
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return usageError{fmt.Sprintf("%q is no header: want NAME:VALUE", h)}
		}
		request.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	client := &http.Client{Timeout: time.Duration(timeout), Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure},
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(p.out, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("status is %s", answer.Status)
	}
	return nil
}
