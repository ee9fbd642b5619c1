package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			pods, err := s.client.Pods(cmd.Context())
			if err != nil {
				return err
			}
			if pods, err = choosePods(pods, args, namespace); err != nil {
				return err
			}
			return showPods(a.out, pods, output, time.Now())
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

func showPods(w io.Writer, pods []corev1.Pod, output string, now time.Time) error {
	switch output {
	case "json", "yaml":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
		for i := range list.Items {
			list.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		}
		data, err := json.MarshalIndent(&list, "", "  ")
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
	case "name":
		for _, p := range pods {
			fmt.Fprintln(w, podName(p.Namespace, p.Name))
		}
		return nil
	}
	if len(pods) == 0 {
		fmt.Fprintln(w, "no pods")
		return nil
	}
	title := []string{"NAMESPACE", "POD", "STATE", "READY", "RESTARTS", "AGE"}
	if output == "wide" {
		title = append(title, "IP", "QOS", "IMAGES", "UID")
	}
	rows := [][]string{title}
	for i := range pods {
		rows = append(rows, psRow(&pods[i], output == "wide", now))
	}
	columns(w, rows)
	return nil
}

// stopping says that a pod is being stopped.
func stopping(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || agent.Stopping(&p.Status)
}

func psRow(p *corev1.Pod, wide bool, now time.Time) []string {
	known := &podState{name: p.Name, spec: &p.Spec, since: p.CreationTimestamp.Time, asked: stopping(p)}
	if p.Status.Phase != "" {
		known.status = &p.Status
	}
	word, _ := podWord(known)
	if p.DeletionTimestamp != nil {
		word = "stopping"
	}
	ready, total, restarts := counts(known.status)
	if known.status == nil {
		total = len(p.Spec.Containers)
	}
	row := []string{
		p.Namespace, p.Name, word, fmt.Sprintf("%d/%d", ready, total),
		strconv.Itoa(int(restarts)), format.Duration(known.age(now)),
	}
	if wide {
		var images []string
		for _, c := range p.Spec.Containers {
			images = append(images, c.Image)
		}
		row = append(row, cmp.Or(p.Status.PodIP, "-"), string(p.Status.QOSClass), strings.Join(images, ","), string(p.UID))
	}
	return row
}

// columns writes rows with aligned columns, two spaces between.
func columns(w io.Writer, rows [][]string) {
	var widths []int
	for _, r := range rows {
		for i, s := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(s))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, s := range r {
			if i < len(r)-1 {
				s = pad(s, widths[i]) + "  "
			}
			b.WriteString(s)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
