// Apps is what runs in the images of critest that are not busybox alone: web
// servers in the place of nginx and httpd, a program that tells its effective
// user, and one that waits. Which of them, the name that it is called by says.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	err := fmt.Errorf("%s is no app", os.Args[0])
	switch name := filepath.Base(os.Args[0]); {
	case name == "nginx", name == "httpd":
		err = rename(name)
	case strings.HasSuffix(name, ": master process"):
		err = serve(strings.TrimSuffix(name, ": master process"))
	case name == "nonewprivs":
		_, err = fmt.Println("Effective uid:", os.Geteuid())
	case name == "pause":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		<-stop
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rename gives the process the command line that nginx gives its first one; specs
// look for it.
func rename(name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{name + ": master process"}, os.Args[1:]...), os.Environ())
}

// serve answers each request with a page, and logs it.
func serve(name string) error {
	port := flag.Int("port", 80, "where to listen")
	flag.Parse()
	if err := os.WriteFile("/var/run/"+name+".pid", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil { //nolint:gosec // as nginx does
		return err
	}
	fmt.Printf("%s listens on port %d\n", name, *port)
	return http.ListenAndServe(fmt.Sprint(":", *port), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // no time-outs needed
		fmt.Println(r.Method, r.URL.Path)
		fmt.Fprintln(w, "this is", name)
	}))
}
