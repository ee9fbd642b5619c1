// Command kubeletlog compares what a kubelet complained of over two runtimes:
//
//	kubeletlog BERTH.log PEER.log
//
// It prints each kind of error and warning with how often it came over each, and
// ends with 1 if there is a kind of error that the first alone has. What only says
// that the runtime did not serve, or that the node was not known yet, is left out.
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
)

// kind is what lines of a log have in common that say the same of different pods.
type kind struct {
	severity string // E or W
	file     string // that logged it
	message  string // without what varies
}

// complaints are the lines of a kind: how many, and the first of them.
type complaints struct {
	count int
	first string
}

var (
	// line is one of klog's: severity and date, time, process, file and line.
	line = regexp.MustCompile(`^([EWF])\d{4} [0-9:.]+ +\d+ ([\w.-]+):\d+\] (.*)$`)
	// structured is a message with values after it.
	structured = regexp.MustCompile(`^("(?:[^"\\]|\\.)*")(?: |$)`)
	// early is in what comes of it that the runtime is killed, as the tests do, and
	// that the kubelet is faster than its node is known.
	early = regexp.MustCompile(`code = Unavailable desc = |grpc: addrConn.createTransport failed to connect|nodes? \\*"[^"]*" not found|node is not registered yet`)
	// varies is what an unstructured message has of names and numbers.
	varies = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|/[^\s:,]+|[\w.-]*\d[\w.-]*`)
)

// read counts the complaints in a kubelet's log by kind.
func read(r io.Reader) (map[kind]*complaints, error) {
	all := map[kind]*complaints{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil || early.MatchString(m[3]) {
			continue
		}
		k := kind{severity: m[1], file: m[2]}
		if s := structured.FindStringSubmatch(m[3]); s != nil {
			k.message = s[1]
		} else {
			k.message = varies.ReplaceAllString(m[3], "…")
		}
		if all[k] == nil {
			all[k] = &complaints{first: m[3]}
		}
		all[k].count++
	}
	return all, lines.Err()
}

// compare prints the kinds of both and gives the number of kinds of error that are
// ours alone.
func compare(w io.Writer, ours, peer map[kind]*complaints) (alone int) {
	var kinds []kind
	for k := range ours {
		kinds = append(kinds, k)
	}
	for k := range peer {
		if ours[k] == nil {
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), cmp.Compare(a.file, b.file), cmp.Compare(a.message, b.message))
	})
	fmt.Fprintln(w, "what the kubelet complained of: over berth cri, over containerd, what")
	for _, k := range kinds {
		o, p, mark := ours[k], peer[k], " "
		first := p
		if o != nil {
			first = o
		}
		if p == nil && k.severity != "W" {
			mark = "!"
			alone++
		}
		fmt.Fprintf(w, "%s %4d %4d  %s %s: %s\n", mark, o.number(), p.number(), k.severity, k.file, first.first)
	}
	return alone
}

func (c *complaints) number() int {
	if c == nil {
		return 0
	}
	return c.count
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: kubeletlog BERTH.log PEER.log")
	}
	var both [2]map[kind]*complaints
	for i, path := range os.Args[1:] {
		f, err := os.Open(path)
		if err != nil {
			log.Fatal(err)
		}
		if both[i], err = read(f); err != nil {
			log.Fatalf("cannot read %s: %v", path, err)
		}
		f.Close()
	}
	if n := compare(os.Stdout, both[0], both[1]); n > 0 {
		log.Fatalf("%d kinds of error come over berth cri alone", n)
	}
}
