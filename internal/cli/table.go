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
	if height < 2 {
		return nil
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *podState) int { return cmp.Compare(rank(a), rank(b)) })
	nameCells, stateCells := len("POD"), len("STATE")
	var rows []row
	left := make(map[string]int)
	var order []string
	for i, p := range sorted {
		block := rowsOf(p, now)
		// The last line is for the count of the rest.
		room := height - 1 - len(rows)
		if i < len(sorted)-1 {
			room--
		}
		if len(left) > 0 || len(block) > room {
			if len(left) == 0 && room >= 1 && len(block) > 1 {
				rows = append(rows, block[0]) // at least the pod itself
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
	for _, r := range rows {
		nameCells, stateCells = max(nameCells, cells(r.name)), max(stateCells, cells(r.state))
	}
	// READY, RESTARTS and AGE take 5, 8 and 6 cells and two spaces each.
	const fixed = 2 + 5 + 2 + 8 + 2 + 6
	nameCells = min(nameCells, max(width/3, 10))
	stateCells = max(min(stateCells, width-fixed-nameCells-2), 5)
	line := func(r row) string {
		return pad(r.name, nameCells) + "  " + st.mood(r.mood, pad(r.state, stateCells)) + "  " +
			pad(r.ready, 5) + "  " + pad(r.restarts, 8) + "  " + r.age
	}
	header := row{name: "POD", state: "STATE", ready: "READY", restarts: "RESTARTS", age: "AGE"}
	plain := style{}
	title := pad(header.name, nameCells) + "  " + plain.mood(calm, pad(header.state, stateCells)) + "  " +
		pad(header.ready, 5) + "  " + pad(header.restarts, 8) + "  " + header.age
	lines := []string{st.bold(cut(title, width))}
	for _, r := range rows {
		if r.inner && r.ready == "" && r.age == "" {
			// What a container says of itself may use the whole line.
			lines = append(lines, pad(r.name, nameCells)+"  "+st.mood(r.mood, cut(r.state, width-nameCells-2)))
			continue
		}
		lines = append(lines, strings.TrimRight(line(r), " "))
	}
	if len(order) > 0 {
		n := 0
		var parts []string
		for _, word := range order {
			n += left[word]
			parts = append(parts, fmt.Sprintf("%d %s", left[word], word))
		}
		lines = append(lines, st.dim(cut(fmt.Sprintf("… and %d more: %s", n, strings.Join(parts, ", ")), width)))
	}
	return lines
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
