package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/home"
	"github.com/berth-run/berth/internal/nodeapi"
)

func completionCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that lets your shell complete berth's commands",
		Example: `  source <(berth completion bash)
  berth completion fish > ~/.config/fish/completions/berth.fish`,
		Args:        cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:   []string{"bash", "zsh", "fish"},
		Annotations: map[string]string{withoutRoot: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return cmd.Root().GenZshCompletion(cmd.OutOrStdout())
			case "fish":
				return cmd.Root().GenFishCompletion(cmd.OutOrStdout(), true)
			}
			return cmd.Root().GenBashCompletionV2(cmd.OutOrStdout(), true)
		},
	}
}

// podsNow lists pods for completion: quickly or not at all. It brings up no
// agent.
func (a *app) podsNow(ctx context.Context) []corev1.Pod {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h, err := home.Find(a.root, a.run)
	if err != nil {
		return nil
	}
	client := nodeapi.NewClient(h.Socket())
	defer client.Close()
	pods, err := client.Pods(ctx)
	if err != nil {
		return nil
	}
	return pods
}

func (a *app) completePods(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	named := make(map[string]bool)
	for _, arg := range args {
		named[arg] = true
	}
	var names []string
	for _, p := range a.podsNow(cmd.Context()) {
		if name := podName(p.Namespace, p.Name); !named[name] {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completePod(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completePods(cmd, args, part)
}

// registerContainers completes the containers of the pod that is named.
func registerContainers(a *app, c *cobra.Command) {
	err := c.RegisterFlagCompletionFunc("container", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range findPods(a.podsNow(cmd.Context()), args[0], "") {
			names = append(names, containerNames(&p)...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("cli: " + err.Error())
	}
}
