package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func describeCommand(a *app) *cobra.Command {
	var namespace, output string
	c := &cobra.Command{
		Use:     "describe POD",
		Aliases: []string{"why"},
		Short:   "Say all that is known of a pod: why it is as it is, and what happened",
		Long: `Say all that is known of a pod: its state, what keeps it from being ready, its
conditions, how each container is and how it ended before, the last results of
its probes, and what happened to it.

Events are those of the pod's whole life, each with how often and when it
happened first and last. Of each reason the newest few texts are kept; an agent
that takes over knows what the one before has seen. They go with the pod.

With -o json or yaml: the pod with its status, probes with their last checks, and
events.`,
		Example: `  berth describe web
  berth why web                          # the same
  berth describe web -o json | jq '.events[-1]'`,
		Args:              exactlyOne("pod"),
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, output) {
				return usageError("-o is %q, want json or yaml", output)
			}
			return a.describe(cmd.Context(), args[0], namespace, output)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod")
	c.Flags().StringVarP(&output, "output", "o", "", "how to say it: json or yaml (default in words)")
	return c
}

func (a *app) describe(ctx context.Context, arg, namespace, output string) (err error) {
	s, err := a.connectSettled(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	s.noteTrouble()
	pod, err := s.onePod(ctx, arg, namespace)
	if err != nil {
		return err
	}
	all, err := s.client.Describe(ctx, []types.UID{pod.UID})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return noSuchPod(arg, nil) // it has gone meanwhile
	}
	d := all[0]
	if output != "" {
		d.Pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return encode(a.out, d, output)
	}
	_, err = a.out.Write([]byte(description(d, time.Now())))
	return err
}
