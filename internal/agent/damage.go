package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/db"
)

// openDatabase opens the records of the root. Damaged ones give db.ErrDamaged,
// unless all is about to be removed.
func (a *Agent) openDatabase() error {
	cfg := db.Config{Path: a.cfg.home.Database(), Log: a.log}
	if a.cfg.anyUse {
		cfg.Aside, cfg.Log = a.cfg.home.BrokenDatabase(), slog.New(slog.DiscardHandler)
	}
	return a.useDatabase(cfg)
}

func (a *Agent) useDatabase(cfg db.Config) (err error) {
	if a.db, err = db.Open(cfg); err != nil {
		return err
	}
	a.closers.add(a.db.Close)
	return nil
}

// beginAnew puts damaged records aside and begins new ones, but only when nothing
// runs: without its record a pod is one that nobody asked for, and is ended.
func (a *Agent) beginAnew(ctx context.Context, damage error) error {
	running, err := a.runningPods(ctx)
	if err != nil {
		return errors.Join(damage, err)
	}
	path := a.cfg.home.Database()
	if len(running) > 0 {
		return fmt.Errorf("%w\nit says what is wanted of the pods of this root; those that run go on untouched, and nobody tends them: %s\n"+
			"put a copy of the file back, and berth goes on with them; or give them up: mv %s %s.old, or berth cleanup, and they are stopped",
			damage, strings.Join(running, ", "), path, path)
	}
	return a.useDatabase(db.Config{Path: path, Aside: a.cfg.home.BrokenDatabase(), Log: a.log})
}

// runningPods names the pods that the runtime has something running of.
func (a *Agent) runningPods(ctx context.Context) ([]string, error) {
	sandboxes, err := a.cri.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := a.cri.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, err
	}
	lives := make(map[string]bool)
	for _, c := range containers {
		lives[c.GetPodSandboxId()] = true
	}
	var names []string
	for _, s := range sandboxes {
		if lives[s.GetId()] || s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			names = append(names, s.GetMetadata().GetNamespace()+"/"+s.GetMetadata().GetName())
		}
	}
	slices.Sort(names)
	return names, nil
}
