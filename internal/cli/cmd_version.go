package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/version"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print berth's version",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{withoutRoot: "true"},
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.out, versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("berth %s %s/%s\n", version.String(), runtime.GOOS, runtime.GOARCH)
}
