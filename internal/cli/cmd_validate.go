package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func validateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check manifests without running anything",
		Long: `Check manifests: files, folders, or - for standard input. All problems of all
files are shown, as FILE:LINE: FIELD: what is wrong (what to do), and what is only
odd as FILE:LINE: warning: FIELD: …, to standard error.

Exit code 0: they would run. 2: they would not.`,
		Example: `  berth validate pod.yaml
  kustomize build . | berth validate -`,
		Args:        atLeastOne("file"),
		Annotations: map[string]string{withoutRoot: "true"},
		RunE: func(_ *cobra.Command, files []string) error {
			set, err := a.check(files)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s, %s, %s: valid\n", count(len(set.Pods), "pod"),
				count(len(set.ConfigMaps), "ConfigMap"), count(len(set.Secrets), "Secret"))
			return err
		},
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
