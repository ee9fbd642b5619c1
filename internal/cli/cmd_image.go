package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/nodeapi"
)

func imageCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "List, pull, import and remove images",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command image %s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(imageList(a), imagePull(a), imageImport(a), imageRemove(a), imagePrune(a))
	return c
}

// withAgent calls f with a session to the root's agent. Only with mayBegin may
// the root be one that is not there yet.
func (a *app) withAgent(ctx context.Context, need rootNeed, f func(s *session) error) error {
	if need == existing {
		if err := a.mustHaveRoot(ctx); err != nil {
			return err
		}
	}
	s, err := a.connect(ctx, here)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.close(context.WithoutCancel(ctx)))
}

// rootNeed says whether a command may make the root.
type rootNeed int

const (
	existing rootNeed = iota // it is about what is there
	mayBegin                 // it brings something
)

func imageList(a *app) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images that are here",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return usageError("-o is %q, want json", output)
			}
			return a.withAgent(cmd.Context(), existing, func(s *session) error {
				list, err := s.client.Images(cmd.Context())
				if err != nil {
					return err
				}
				if output == "json" {
					enc := json.NewEncoder(a.out)
					enc.SetIndent("", "  ")
					return enc.Encode(list)
				}
				rows := [][]string{{"IMAGE", "ID", "SIZE", "HERE SINCE"}}
				for _, i := range list {
					for _, name := range imageNames(i) {
						rows = append(rows, []string{
							name, shortID(i.ID), format.Bytes(i.SizeBytes),
							format.Duration(time.Since(i.Created).Truncate(time.Second)),
						})
					}
				}
				columns(a.out, rows, 0)
				return nil
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "how to show them: json")
	return c
}

func imageNames(i nodeapi.Image) []string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags
	case len(i.Digests) > 0:
		return i.Digests
	}
	return []string{"<none>"}
}

func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), 12)]
}

func imagePull(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "pull IMAGE...",
		Short:   "Fetch images from their registries",
		Example: `  berth image pull docker.io/library/nginx:1.29`,
		Args:    atLeastOne("image"),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.withAgent(cmd.Context(), mayBegin, func(s *session) error {
				for _, ref := range refs {
					p := newPullView(a, ref)
					img, err := s.client.PullImage(cmd.Context(), ref, p.progress)
					p.end()
					if err != nil {
						if strings.HasPrefix(err.Error(), "cannot pull image ") {
							return err // it names the image already
						}
						return fmt.Errorf("cannot pull %s: %w", ref, err)
					}
					fmt.Fprintf(a.out, "%s %s\n", shortID(img.ID), strings.Join(imageNames(img), " "))
				}
				return nil
			})
		},
	}
}

// pullView shows how far a pull is: a bar on a terminal, else nothing.
type pullView struct {
	ref    string
	screen *screen
	size   func() (int, int)
}

func newPullView(a *app, ref string) *pullView {
	v := &pullView{ref: ref}
	if f, ok := a.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) { //nolint:gosec // a descriptor fits
		v.screen = &screen{out: f}
		v.size = func() (int, int) { return terminalSize(f) }
	}
	return v
}

func (v *pullView) progress(p nodeapi.Pull) {
	if v.screen == nil {
		return
	}
	width, height := v.size()
	line := p.Phase + " " + bar(agent.Progress{Done: p.DoneBytes, Total: p.TotalBytes}) + " " + v.ref
	v.screen.draw([]string{cut(line, width)}, width, height)
}

func (v *pullView) end() {
	if v.screen != nil {
		width, height := v.size()
		v.screen.draw(nil, width, height)
		v.screen.end()
	}
}

func imageImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE...",
		Short: "Read images from OCI layouts and from OCI or docker archives",
		Example: `  docker save app:1 -o app.tar && berth image import app.tar
  berth image import ./oci-layout`,
		Args: atLeastOne("file"),
		RunE: func(cmd *cobra.Command, files []string) error {
			var paths []string
			for _, file := range files {
				path, err := filepath.Abs(file)
				if err != nil {
					return err
				}
				if _, err := os.Stat(path); err != nil {
					return fmt.Errorf("cannot import images: %w", err) // before anything is made
				}
				paths = append(paths, path)
			}
			return a.withAgent(cmd.Context(), mayBegin, func(s *session) error {
				for _, path := range paths {
					list, err := s.client.ImportImages(cmd.Context(), path)
					if err != nil {
						return err
					}
					for _, i := range list {
						fmt.Fprintf(a.out, "%s %s\n", shortID(i.ID), strings.Join(imageNames(i), " "))
					}
				}
				return nil
			})
		},
	}
}

func imageRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images, by name or id; containers that run on them go on",
		Args:  atLeastOne("image"),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.withAgent(cmd.Context(), existing, func(s *session) error {
				var errs []error
				for _, ref := range refs {
					if err := s.client.RemoveImage(cmd.Context(), ref); err != nil {
						errs = append(errs, err)
						continue
					}
					fmt.Fprintf(a.out, "%s removed\n", ref)
				}
				return errors.Join(errs...)
			})
		},
	}
}

func imagePrune(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove images without a tag that no container uses; with --all, also those with one",
		Long: `Remove images that have no tag and that no container uses: those whose tags went
to other images, and those that were pulled by digest. With --all, remove every
image that no container uses, but for the demo image.

Containers that have ended use their images until their pod is removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAgent(cmd.Context(), existing, func(s *session) error {
				p, err := s.client.PruneImages(cmd.Context(), all)
				if err != nil {
					return err
				}
				for _, id := range p.Images {
					fmt.Fprintln(a.out, shortID(id))
				}
				fmt.Fprintf(a.out, "%s removed, %s freed\n", count(len(p.Images), "image"), format.Bytes(p.FreedBytes))
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also images with a tag")
	return c
}
