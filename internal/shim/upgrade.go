package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/internal/shim/shimpb"
)

// upgradeWait is how long an upgrade waits for this client's calls that it would
// cut off. Others wait behind it.
const upgradeWait = 3 * time.Second

// Upgrade lets the shim replace its program by binary, in the same process: the
// containers stay its children, and nothing they write is lost. Calls of this
// client wait or are repeated. It is refused with ErrState while an exec or an
// attachment is under way, and with another error when binary can't go on with what
// is there: the shim then goes on as before.
//
// If the new program ends before it serves, its containers live on, and the next
// call starts a shim as after a kill.
func (c *Client) Upgrade(ctx context.Context, binary string) error {
	if err := c.needs(ctx, 2, "upgrade the shim"); err != nil {
		return err
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return fmt.Errorf("cannot upgrade the shim: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, upgradeWait)
	defer cancel()
	open, err := c.gate.Shut(wait)
	if err != nil {
		return fmt.Errorf("cannot upgrade the shim while an exec, an attachment or a start is under way, try again later: %w", ErrState)
	}
	defer open()
	c.mu.Lock()
	before := c.peer
	c.mu.Unlock()
	began := time.Now()
	_, err = ask(ctx, c, func(s shimpb.ShimClient) (*shimpb.Empty, error) {
		return s.Upgrade(ctx, &shimpb.UpgradeRequest{Binary: binary})
	})
	if err == nil {
		return errors.New("cannot upgrade the shim: it says that it is done and still runs its former program")
	}
	if !errors.Is(err, ErrGone) {
		return err
	}
	// The connection ended with the former program.
	now, err := c.ping(ctx)
	if err != nil {
		return fmt.Errorf("cannot reach the shim after its upgrade: %w", err)
	}
	if now.Pid != before.Pid {
		return fmt.Errorf("the shim ended during its upgrade to %s; another one (version %s, pid %d) has adopted its containers", binary, now.Version, now.Pid)
	}
	c.cfg.Log.Info("shim upgraded", "from", before.Version, "to", now.Version, "pid", now.Pid, "took", time.Since(began))
	return nil
}

// upgradeOutdated upgrades a shim that runs another program than the one that this
// client would start.
func (c *Client) upgradeOutdated(ctx context.Context) error {
	c.mu.Lock()
	peer := c.peer
	c.mu.Unlock()
	want, err := BuildID(c.cfg.Binary)
	if err != nil {
		return err
	}
	if peer.Build == want || peer.Build == "" && peer.Protocol >= 2 {
		return nil
	}
	return c.Upgrade(ctx, c.cfg.Binary)
}
