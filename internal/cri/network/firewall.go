package network

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// A packet must be accepted by every table that looks at it, so no rule of our
// own helps against a firewall that drops what it does not know. Docker is such a
// one: it makes iptables drop forwarded packets by default. Into that chain of
// iptables, and no other, we put two rules, marked as ours, as others who run
// containers do; about any other firewall we warn.

// passFirewalls makes sure that forwarded packets of pods get through.
func (n *Network) passFirewalls() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	chains, err := n.droppingChains(c)
	if err != nil {
		return err
	}
	for _, ch := range chains {
		if !ofIptables(ch) {
			n.warnOfFirewall(ch)
			continue
		}
		ours, err := n.ownRules(c, ch)
		if err != nil {
			return err
		}
		if len(ours) > 0 {
			continue
		}
		for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
			c.InsertRule(&nftables.Rule{
				Table: ch.Table, Chain: ch, UserData: n.mark(),
				// Written as iptables writes it, which refuses to list what it
				// cannot read.
				Exprs: []expr.Any{
					&expr.Meta{Key: key, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte(n.cfg.Bridge), 0)},
					&expr.Counter{},
					&expr.Verdict{Kind: expr.VerdictAccept},
				},
			})
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("cannot add rules to chain %s of iptables: %w", ch.Name, err)
		}
		n.log.Info("iptables drops forwarded packets, added rules that accept those of pods", "chain", ch.Name, "bridge", n.cfg.Bridge)
	}
	return nil
}

// leaveFirewalls removes our rules from others' chains.
func (n *Network) leaveFirewalls() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	all, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("cannot list chains of nftables: %w", err)
	}
	var errs []error
	for _, ch := range all {
		if !ofIptables(ch) {
			continue
		}
		ours, err := n.ownRules(c, ch)
		errs = append(errs, err)
		for _, r := range ours {
			errs = append(errs, c.DelRule(r))
		}
	}
	return errors.Join(append(errs, c.Flush())...)
}

// droppingChains lists chains of others that drop forwarded packets of a family
// that pods have, unless some rule accepts them.
func (n *Network) droppingChains(c *nftables.Conn) ([]*nftables.Chain, error) {
	all, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("cannot list chains of nftables: %w", err)
	}
	var found []*nftables.Chain
	for _, ch := range all {
		drops := ch.Hooknum != nil && *ch.Hooknum == *nftables.ChainHookForward && ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop
		switch ch.Table.Family {
		case nftables.TableFamilyIPv4, nftables.TableFamilyINet:
		case nftables.TableFamilyIPv6:
			drops = drops && len(n.cidrs) > 1
		default:
			drops = false
		}
		if drops {
			found = append(found, ch)
		}
	}
	return found, nil
}

func ofIptables(ch *nftables.Chain) bool {
	return ch.Name == "FORWARD" && ch.Table.Name == "filter" && (ch.Table.Family == nftables.TableFamilyIPv4 || ch.Table.Family == nftables.TableFamilyIPv6)
}

// warnOfFirewall says once for each chain that packets may be dropped.
func (n *Network) warnOfFirewall(ch *nftables.Chain) {
	name := ch.Table.Name + " " + ch.Name
	n.mu.Lock()
	warned := n.warned[name]
	n.warned[name] = true
	n.mu.Unlock()
	if !warned {
		n.log.Warn("a firewall drops forwarded packets by default; if pods cannot be reached, have it accept those of the bridge", "table", ch.Table.Name, "chain", ch.Name, "bridge", n.cfg.Bridge)
	}
}

func (n *Network) ownRules(c *nftables.Conn, ch *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := c.GetRules(ch.Table, ch)
	if err != nil {
		return nil, fmt.Errorf("cannot list rules of chain %s: %w", ch.Name, err)
	}
	var ours []*nftables.Rule
	for _, r := range rules {
		if string(r.UserData) == string(n.mark()) {
			r.Table, r.Chain = ch.Table, ch // the answer names the table without its family
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// mark is the comment of rules of ours among those of others.
func (n *Network) mark() []byte {
	return userdata.AppendString(nil, userdata.TypeComment, n.nft.table.Name)
}
