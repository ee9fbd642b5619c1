package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
)

// page is text of names and what is to be said of them, aligned and indented.
type page struct {
	strings.Builder
	now time.Time
}

// say writes a line; what has several lines is indented as a whole. Nothing is
// said of what is empty.
func (w *page) say(indent, size int, name, text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	gap := strings.Repeat(" ", indent+size)
	w.WriteString(strings.Repeat(" ", indent) + pad(name+":", size) + strings.Join(lines, "\n"+gap) + "\n")
}

// table writes aligned columns below a title of theirs.
func (w *page) table(rows [][]string) {
	var b strings.Builder
	columns(&b, rows, 0)
	for line := range strings.Lines(b.String()) {
		w.WriteString("  " + line)
	}
}

// at says when something was, and how long ago.
func (w *page) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05") + " (" + w.ago(t) + " ago)"
}

func (w *page) ago(t time.Time) string {
	return format.Duration(max(w.now.Sub(t), 0).Truncate(time.Second))
}

// headCells is how wide the names of a pod's facts are, with the space after;
// innerCells of those of a container.
const (
	headCells  = 17
	innerCells = 15
)

// description says in words all that is known of a pod.
func description(d agent.Description, now time.Time) string {
	w := &page{now: now}
	p := described(d)
	head(w, d.Pod, p)
	conditions(w, d.Pod.Status.Conditions)
	containers(w, d, p)
	events(w, d.Events)
	return w.String()
}

func head(w *page, pod *corev1.Pod, p *podState) {
	say := func(name, text string) { w.say(0, headCells, name, text) }
	say("Name", pod.Name)
	say("Namespace", pod.Namespace)
	say("UID", string(pod.UID))
	say("Labels", pairs(pod.Labels))
	say("Annotations", pairs(pod.Annotations))
	word, _ := podWord(p)
	if pod.DeletionTimestamp != nil {
		word = "stopping, to be removed"
	}
	say("State", word)
	say("Why", why(p))
	phase := string(cmp.Or(pod.Status.Phase, corev1.PodPending))
	if pod.Status.Reason != "" {
		phase += ", " + pod.Status.Reason
	}
	say("Phase", phase)
	say("Message", pod.Status.Message)
	say("Asked for", w.at(pod.CreationTimestamp.Time))
	if pod.Status.StartTime != nil {
		say("Started", w.at(pod.Status.StartTime.Time))
	}
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	say("IP", strings.Join(ips, ", "))
	say("QoS class", string(pod.Status.QOSClass))
	say("Restart policy", string(pod.Spec.RestartPolicy))
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		say("Grace period", format.Duration(time.Duration(*s)*time.Second))
	}
}

// why says, a line each, what keeps a pod from being ready or made it fail.
func why(p *podState) string {
	if reasonOf(p, "") == "" {
		return ""
	}
	if p.over() {
		var lines []string
		for _, b := range p.failures() {
			lines = append(lines, strings.TrimPrefix(b.container+": "+b.sentence(), ": "))
		}
		return strings.Join(lines, "\n")
	}
	return strings.Join(p.causes(false), "\n")
}

func pairs(m map[string]string) string {
	var all []string
	for k, v := range m {
		all = append(all, k+"="+oneLine(v))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func conditions(w *page, all []corev1.PodCondition) {
	if len(all) == 0 {
		return
	}
	w.WriteString("\nConditions:\n")
	rows := [][]string{{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range all {
		since := "-"
		if !c.LastTransitionTime.IsZero() {
			since = w.ago(c.LastTransitionTime.Time)
		}
		rows = append(rows, []string{string(c.Type), string(c.Status), since, cmp.Or(c.Reason, "-"), brief(c.Message)})
	}
	w.table(rows)
}

func events(w *page, all []agent.PastEvent) {
	if len(all) == 0 {
		w.WriteString("\nEvents: none\n")
		return
	}
	w.WriteString("\nEvents:\n")
	rows := [][]string{{"AGE", "TYPE", "REASON", "CONTAINER", "MESSAGE"}}
	for _, e := range all {
		age := w.ago(e.Last)
		if e.Count > 1 {
			age += fmt.Sprintf(" (x%d over %s)", e.Count, w.ago(e.First))
		}
		rows = append(rows, []string{age, e.Type, e.Reason, cmp.Or(e.Container, "-"), brief(e.Message)})
	}
	w.table(rows)
}
