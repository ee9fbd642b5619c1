package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
)

func psCommand(a *app) *cobra.Command {
	var namespace, output string
	var all bool
	c := &cobra.Command{
		Use:     "ps [POD...]",
		Aliases: []string{"pods"},
		Short:   "List pods: what runs, and what has ended and was not removed",
		Long: `List pods: what runs, and what has ended and was not removed.

REASON says in short why a pod is not ready, or how it failed; -o wide does not
cut it off at the end of the line. Columns that a terminal has no room for are left
out, and the namespace of pods that are all in default. berth describe says all
there is to say of a pod.

A pod that is being stopped is shown as stopping until its last container has
ended. With -o json or yaml it has metadata.deletionTimestamp if it is to go from
the list then; else status.reason says why it is stopped, while its status.phase
is still Pending or Running.`,
		Example: `  berth ps
  berth ps -o wide
  berth ps web -o yaml`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, output) {
				return usageError("-o is %q, want wide, json, yaml or name", output)
			}
			s, err := a.connectSettled(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = s.close(cmd.Context()) }()
			s.noteTrouble()
			pods, err := s.client.Pods(cmd.Context())
			if err != nil {
				return err
			}
			if pods, err = choosePods(pods, args, namespace); err != nil {
				return err
			}
			all, err := explained(cmd.Context(), s, pods, output)
			if err != nil {
				return err
			}
			return showPods(a.out, all, output, time.Now())
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only pods of this namespace (default all)")
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "pods of all namespaces; that is the default")
	c.Flags().StringVarP(&output, "output", "o", "", "how to show them: wide, json, yaml or name")
	return c
}

// choosePods picks the pods that args name, or all of a namespace.
func choosePods(pods []corev1.Pod, args []string, namespace string) ([]corev1.Pod, error) {
	slices.SortStableFunc(pods, func(x, y corev1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	if len(args) == 0 {
		return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return namespace != "" && p.Namespace != namespace }), nil
	}
	var chosen []corev1.Pod
	for _, arg := range args {
		found := findPods(pods, arg, namespace)
		if len(found) == 0 {
			return nil, noSuchPod(arg, pods)
		}
		chosen = append(chosen, found...)
	}
	return chosen, nil
}

// findPods finds pods by NAME, NAMESPACE/NAME or, as kubectl prints them,
// pod/NAME. Without a namespace, the one called default comes first, then all.
func findPods(pods []corev1.Pod, arg, namespace string) []corev1.Pod {
	if ns, name, ok := strings.Cut(arg, "/"); ok {
		kind := slices.Contains([]string{"pod", "pods", "po"}, ns) &&
			!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Namespace == ns && p.Name == name })
		if !kind {
			namespace = ns
		}
		arg = name
	}
	pick := func(ns string) (found []corev1.Pod) {
		for _, p := range pods {
			if p.Name == arg && (ns == "" || p.Namespace == ns) {
				found = append(found, p)
			}
		}
		return found
	}
	if namespace != "" {
		return pick(namespace)
	}
	if found := pick(corev1.NamespaceDefault); len(found) > 0 {
		return found
	}
	return pick("")
}

func noSuchPod(arg string, pods []corev1.Pod) error {
	if len(pods) == 0 {
		return fmt.Errorf("there is no pod %s, nor any other", arg)
	}
	_, name, inNamespace := strings.Cut(arg, "/")
	if !inNamespace {
		name = arg
	}
	// Then it was looked for in one namespace only.
	elsewhere := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
	var names []string
	for _, p := range pods[:min(len(pods), 8)] {
		if elsewhere {
			names = append(names, p.Namespace+"/"+p.Name)
		} else {
			names = append(names, podName(p.Namespace, p.Name))
		}
	}
	if len(pods) > 8 {
		names = append(names, "…")
	}
	where := ""
	if elsewhere && !inNamespace {
		where = " in that namespace"
	}
	return fmt.Errorf("there is no pod %s%s; there are: %s", arg, where, strings.Join(names, ", "))
}

// podName is how people call a pod.
func podName(namespace, name string) string {
	if namespace == corev1.NamespaceDefault {
		return name
	}
	return namespace + "/" + name
}

// explained gets what says why pods are not ready, where it is shown.
func explained(ctx context.Context, s *session, pods []corev1.Pod, output string) ([]agent.Description, error) {
	var uids []types.UID
	all := make([]agent.Description, len(pods))
	for i := range pods {
		all[i].Pod = &pods[i]
		if (output == "" || output == "wide") && !isReady(&pods[i].Status) {
			uids = append(uids, pods[i].UID)
		}
	}
	if len(uids) == 0 {
		return all, nil
	}
	more, err := s.client.Describe(ctx, uids)
	for _, d := range more {
		for i := range all {
			if all[i].Pod.UID == d.Pod.UID {
				all[i] = d // it is newer
			}
		}
	}
	return all, err
}

func showPods(w io.Writer, all []agent.Description, output string, now time.Time) error {
	switch output {
	case "json", "yaml":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
		for _, d := range all {
			d.Pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			list.Items = append(list.Items, *d.Pod)
		}
		return encode(w, &list, output)
	case "name":
		for _, d := range all {
			fmt.Fprintln(w, podName(d.Pod.Namespace, d.Pod.Name))
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no pods")
		return nil
	}
	title := []string{"NAMESPACE", "POD", "STATE", "READY", "RESTARTS", "AGE"}
	if output == "wide" {
		title = append(title, "IP", "QOS", "IMAGES", "UID")
	}
	rows := [][]string{append(title, "REASON")}
	for _, d := range all {
		rows = append(rows, psRow(d, output == "wide", now))
	}
	limit := 0
	if f, ok := asFile(w); ok && output == "" && term.IsTerminal(int(f.Fd())) { //nolint:gosec // a descriptor fits
		limit, _ = terminalSize(f)
	}
	if limit > 0 {
		rows = narrow(rows, limit)
	}
	columns(w, rows, limit)
	return nil
}

// encode writes an object as json or yaml.
func encode(w io.Writer, object any, output string) error {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return err
	}
	if output == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	} else {
		data = append(data, '\n')
	}
	_, err = w.Write(data)
	return err
}

// stopping says that a pod is being stopped.
func stopping(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || agent.Stopping(&p.Status)
}

func psRow(d agent.Description, wide bool, now time.Time) []string {
	pod, p := d.Pod, described(d)
	word, _ := podWord(p)
	if pod.DeletionTimestamp != nil {
		word = "stopping"
	}
	ready, total, restarts := counts(p.status)
	if p.status == nil {
		total = len(p.spec.Containers)
	}
	row := []string{
		pod.Namespace, pod.Name, word, fmt.Sprintf("%d/%d", ready, total),
		strconv.Itoa(int(restarts)), format.Duration(p.age(now)),
	}
	if wide {
		var images []string
		for _, c := range pod.Spec.Containers {
			images = append(images, c.Image)
		}
		row = append(row, cmp.Or(pod.Status.PodIP, "-"), string(pod.Status.QOSClass), strings.Join(images, ","), string(pod.UID))
	}
	return append(row, reasonOf(p, word))
}

// leastReason is how much of REASON is shown before other columns are, in cells.
const leastReason = 20

// narrow leaves out columns that there is no room for on a terminal of so many
// cells, those first which tell least, and cuts names and states where that is not
// enough. Rows have a title, which begins with namespace, pod and state, and ends with
// the reason. It changes them.
func narrow(rows [][]string, limit int) [][]string {
	widths := widthsOf(rows)
	last := len(widths) - 1
	reason := widths[last]
	others := func() (n int) {
		for _, w := range widths[:last] {
			if w > 0 {
				n += w + 2
			}
		}
		return n
	}
	same := !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[0] != corev1.NamespaceDefault })
	if same && others()+reason > limit {
		widths[0] = 0
	}
	for _, title := range []string{"RESTARTS", "AGE", "READY"} {
		if others()+min(reason, leastReason) > limit {
			widths[slices.Index(rows[0], title)] = 0
		}
	}
	const pod, state = 1, 2
	if others()+min(reason, leastReason) > limit {
		widths[0] = 0
		for _, r := range rows[1:] {
			r[pod] = podName(r[0], r[pod])
		}
		widths[pod] = min(widthsOf(rows)[pod], max(limit/3, 8))
		left := limit - widths[pod] - 4
		widths[state] = min(widths[state], max(left-min(reason, leastReason), left/2))
	}
	var all [][]string
	for _, r := range rows {
		var shown []string
		for i, s := range r {
			switch {
			case i == last:
				shown = append(shown, s)
			case widths[i] > 0:
				shown = append(shown, cut(s, widths[i]))
			}
		}
		all = append(all, shown)
	}
	return all
}

func widthsOf(rows [][]string) []int {
	var widths []int
	for _, r := range rows {
		for i, s := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(s))
		}
	}
	return widths
}

// columns writes rows with aligned columns, two spaces between. Lines are cut to limit
// cells; 0: they are not.
func columns(w io.Writer, rows [][]string, limit int) {
	widths := widthsOf(rows)
	for _, r := range rows {
		var b strings.Builder
		for i, s := range r {
			if i < len(r)-1 {
				s = pad(s, widths[i]) + "  "
			}
			b.WriteString(s)
		}
		line := strings.TrimRight(b.String(), " ")
		if limit > 0 {
			line = cut(line, limit)
		}
		fmt.Fprintln(w, line)
	}
}
