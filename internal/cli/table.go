package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
)

// style colours text, or doesn't.
type style struct{ colour bool }

func (s style) wrap(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) mood(m mood, text string) string {
	switch m {
	case calm:
		return s.wrap("32", text)
	case waiting:
		return s.wrap("33", text)
	case bad:
		return s.wrap("31", text)
	}
	return text
}

func (s style) dim(text string) string  { return s.wrap("2", text) }
func (s style) bold(text string) string { return s.wrap("1", text) }

// originColours are those of containers' names before log lines.
var originColours = [...]string{"36", "35", "34", "32", "33", "96", "95", "94", "92", "93"}

func (s style) origin(n int, text string) string {
	return s.wrap(originColours[n%len(originColours)], text)
}

// row is one line of the table.
type row struct {
	name, state, ready, restarts, age string
	mood                              mood
	inner                             bool // a container's
}

// table shows the pods in at most height lines of width cells. Those that need
// a look come first; of those that don't fit, it says how many there are.
func table(pods []*podState, now time.Time, width, height int, st style) []string {
	if height < 1 || width < 1 || len(pods) == 0 {
		return nil
	}
	room := height
	if height >= leastForTitle || len(pods) == 1 && height > 1 {
		room--
	}
	rows, rest := fitting(pods, now, room)
	l := layoutOf(rows, width)
	var lines []string
	if room < height {
		lines = append(lines, st.bold(l.line(row{name: "POD", state: "STATE", ready: "READY", restarts: "RESTARTS", age: "AGE"}, style{})))
	}
	for _, r := range rows {
		lines = append(lines, l.line(r, st))
	}
	if rest != "" {
		lines = append(lines, st.dim(cut(rest, width)))
	}
	return lines
}

// leastForTitle is how many lines there must be for a line of titles.
const leastForTitle = 4

// fitting are the rows of the pods that fit into so many lines, and what is to be
// said of the others on the last of them; empty: there are none.
func fitting(pods []*podState, now time.Time, room int) (rows []row, rest string) {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *podState) int { return cmp.Compare(rank(a), rank(b)) })
	left := make(map[string]int)
	var order []string
	for i, p := range sorted {
		block := rowsOf(p, now)
		free := room - len(rows)
		if i < len(sorted)-1 {
			free-- // for the count of the rest
		}
		if len(left) > 0 || len(block) > free {
			if len(left) == 0 && free >= 1 {
				// At least the pod itself, and what fits of its containers.
				rows = append(rows, block[:free]...)
				continue
			}
			word, _ := podWord(p)
			if left[word]++; left[word] == 1 {
				order = append(order, word)
			}
			continue
		}
		rows = append(rows, block...)
	}
	n := 0
	var parts []string
	for _, word := range order {
		n += left[word]
		parts = append(parts, fmt.Sprintf("%d %s", left[word], word))
	}
	switch {
	case n == 0:
	case len(rows) == 0:
		rest = fmt.Sprintf("%d pods: %s", n, strings.Join(parts, ", "))
	default:
		rest = fmt.Sprintf("… and %d more: %s", n, strings.Join(parts, ", "))
	}
	return rows, rest
}

// layout says how wide the columns are, in cells. Those on the right are left out
// where there is no room for them: 0.
type layout struct {
	width, name, state   int
	ready, restarts, age int
}

// leastForColumns is the narrowest terminal that columns are made for.
const leastForColumns = 8

// layoutOf chooses the columns for rows on a terminal of that width.
func layoutOf(rows []row, width int) layout {
	name, state := len("POD"), len("STATE")
	for _, r := range rows {
		name = max(name, cells(r.name))
		if !r.alone() {
			state = max(state, cells(r.state))
		}
	}
	l := layout{width: width, ready: len("READY"), restarts: len("RESTARTS"), age: 6}
	// Names and states come first: each has this much before numbers have any.
	least := min(name, 8) + 2 + min(state, 8)
	for _, drop := range []*int{&l.age, &l.restarts, &l.ready} {
		if least+l.numbers() > width {
			*drop = 0
		}
	}
	room := max(width-l.numbers()-2, 2)
	l.name = min(name, max(width/3, 10), max(room-min(state, 8), room/2))
	l.state = min(state, room-l.name)
	return l
}

// numbers is what the columns on the right take, with the gaps before them.
func (l layout) numbers() int {
	n := 0
	for _, size := range []int{l.ready, l.restarts, l.age} {
		if size > 0 {
			n += 2 + size
		}
	}
	return n
}

// line is a row of at most l.width cells.
func (l layout) line(r row, st style) string {
	if l.width < leastForColumns {
		return st.mood(r.mood, cut(strings.TrimSpace(r.name)+" "+r.state, l.width))
	}
	name := pad(r.name, l.name) + "  "
	if r.alone() {
		// What a container says of itself may use the whole line.
		return name + st.mood(r.mood, cut(r.state, l.width-l.name-2))
	}
	line := name + st.mood(r.mood, pad(r.state, l.state))
	for _, c := range []struct {
		size int
		text string
	}{{l.ready, r.ready}, {l.restarts, r.restarts}, {l.age, r.age}} {
		if c.size > 0 {
			line += "  " + pad(c.text, c.size)
		}
	}
	return strings.TrimRight(line, " ")
}

// rank sorts pods by how much they need a look.
func rank(p *podState) int {
	_, how := podWord(p)
	switch {
	case p.gone:
		return 4
	case how == bad:
		return 0
	case how == waiting:
		return 1
	case p.over():
		return 3
	}
	return 2
}

// alone says that the row has a state and nothing beside it.
func (r row) alone() bool { return r.inner && r.ready == "" && r.age == "" }

// rowsOf are the pod's row, and rows of those containers that have more to say.
func rowsOf(p *podState, now time.Time) []row {
	word, how := podWord(p)
	ready, total, restarts := counts(p.status)
	if p.status == nil {
		total = len(p.spec.Containers)
	}
	rows := []row{{
		name: p.name, state: word, mood: how, ready: fmt.Sprintf("%d/%d", ready, total),
		restarts: strconv.Itoa(int(restarts)), age: format.Duration(p.age(now)),
	}}
	if p.status == nil || p.gone {
		return rows
	}
	for _, c := range containersOf(p.status) {
		s := p.stateOf(&c)
		r := row{name: "  " + c.Name, state: s.sentence(), mood: s.mood, inner: true}
		pull, pulling := p.pulls[c.Name]
		switch {
		case pulling:
			r.state = "pulling " + bar(pull) + " " + pull.Image
		case s.mood == calm && total == 1, s.waitsForOthers, s.mood == waiting && s.detail == "" && total == 1, isTerminal(p.status) && s.mood == calm:
			continue
		case s.mood == calm || s.detail == "":
			if c.RestartCount > 0 {
				r.state += fmt.Sprintf(" (%d restarts)", c.RestartCount)
			}
		}
		rows = append(rows, r)
	}
	if p.status.Message != "" && isTerminal(p.status) {
		rows = append(rows, row{name: "", state: brief(p.status.Message), mood: how, inner: true})
	}
	return rows
}

func (p *podState) age(now time.Time) time.Duration {
	since := p.since
	if p.status != nil && p.status.StartTime != nil {
		since = p.status.StartTime.Time
	}
	return max(now.Sub(since), 0).Truncate(time.Second)
}

const barCells = 20

// bar shows how far a pull is.
func bar(p agent.Progress) string {
	if p.Total <= 0 {
		return format.Bytes(p.Done)
	}
	full := int(min(p.Done, p.Total) * barCells / p.Total)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barCells-full) + "] " +
		format.Bytes(p.Done) + "/" + format.Bytes(p.Total)
}
