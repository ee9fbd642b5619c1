package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/home"
)

// ParseRuntimeHandlers reads runtime handlers, and returns all that is wrong with
// them.
func ParseRuntimeHandlers(texts []string) ([]cri.RuntimeHandler, error) {
	list := []cri.RuntimeHandler{}
	var errs []error
	for _, text := range texts {
		h, err := cri.ParseRuntimeHandler(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, h)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, cri.CheckRuntimeHandlers(list)
}

// RuntimeHandlers are those that the last agent of the root was given.
func RuntimeHandlers(h home.Home) ([]cri.RuntimeHandler, error) {
	data, err := os.ReadFile(h.RuntimeHandlers())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the runtime handlers of the last agent: %w", err)
	}
	var list []cri.RuntimeHandler
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("cannot read the runtime handlers of the last agent: %s: %w; remove it, and name them with --runtime-handler", h.RuntimeHandlers(), err)
	}
	return list, nil
}

// chooseHandlers fills in the runtime handlers where none are asked for: those of the
// agent before, but for those whose program is gone. Pods that need one wait for it;
// the others go on.
func (a *Agent) chooseHandlers() error {
	if a.cfg.Handlers != nil {
		data, err := json.MarshalIndent(a.cfg.Handlers, "", "  ")
		if err != nil {
			return err
		}
		return a.cfg.home.PutRuntimeHandlers(append(data, '\n'))
	}
	list, err := RuntimeHandlers(a.cfg.home)
	if err != nil {
		return err
	}
	for _, h := range list {
		if err := h.Check(); err != nil {
			a.log.Warn("pods can't have a runtime class that they could have before", "err", err)
			continue
		}
		a.cfg.Handlers = append(a.cfg.Handlers, h)
	}
	return nil
}
