package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// elementsPerMessage keeps a netlink attribute with map elements well below its
// limit of 64 KiB.
const elementsPerMessage = 200

// ctStatusDNAT is IPS_DST_NAT of the kernel's conntrack status.
const ctStatusDNAT = 1 << 5

// nft writes the one table of a Network. It keeps no state; the kernel makes
// each batch of changes atomic.
type nft struct {
	table  *nftables.Table
	bridge string
	cidrs  []netip.Prefix
}

func newNFT(name, bridge string, cidrs []netip.Prefix) *nft {
	return &nft{
		table:  &nftables.Table{Name: name, Family: nftables.TableFamilyINet},
		bridge: bridge, cidrs: cidrs,
	}
}

// hostPortMap returns the map for ports of one family, either of any address of
// the host or of given ones. IDs only need to differ within a batch.
func (f *nft) hostPortMap(is4, exact bool) *nftables.Set {
	name, id, addr := "hostports6", uint32(1), nftables.TypeIP6Addr
	if is4 {
		name, id, addr = "hostports4", 2, nftables.TypeIPAddr
	}
	key := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	if exact {
		name, id = name+"_exact", id+2
		key = append([]nftables.SetDatatype{addr}, key...)
	}
	return &nftables.Set{
		Table: f.table, Name: name, ID: id, IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(key...),
		DataType: nftables.MustConcatSetType(addr, nftables.TypeInetService),
	}
}

// element renders a target. Each part of a concatenation is padded to 4 bytes.
func (t target) element() nftables.SetElement {
	var key []byte
	if t.HostIP.IsValid() {
		key = t.HostIP.AsSlice()
	}
	key = append(key, t.Proto, 0, 0, 0)
	key = append(key, paddedPort(t.Host)...)
	return nftables.SetElement{Key: key, Val: append(t.Addr.AsSlice(), paddedPort(t.Port)...)}
}

func paddedPort(p uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, p), 0, 0) }

// replace makes the whole table anew, with these host ports, in one step.
func (f *nft) replace(ts []target) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(f.table) // so that the delete finds one
	c.DelTable(f.table)
	c.AddTable(f.table)
	for _, cidr := range f.cidrs {
		for _, exact := range []bool{false, true} {
			if err := c.AddSet(f.hostPortMap(cidr.Addr().Is4(), exact), nil); err != nil {
				return err
			}
		}
	}
	f.addRules(c)
	if err := f.addElements(c, ts); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
			return fmt.Errorf("cannot write nftables table %s: %w (the kernel needs nftables with NAT in the inet family: Linux 5.2 with CONFIG_NF_TABLES_INET, NFT_NAT, NFT_MASQ and NFT_FIB_INET)", f.table.Name, err)
		}
		return fmt.Errorf("cannot write nftables table %s: %w", f.table.Name, err)
	}
	return nil
}

// add makes host ports lead to their targets. It fails with ENOENT if the table
// is gone.
func (f *nft) add(ts []target) error { return f.change(ts, f.addElements) }

// remove is the opposite of add. If one is not there it fails with ENOENT and
// removes none.
func (f *nft) remove(ts []target) error { return f.change(ts, f.deleteElements) }

func (f *nft) change(ts []target, op func(*nftables.Conn, []target) error) error {
	if len(ts) == 0 {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if err := op(c, ts); err != nil {
		return err
	}
	return c.Flush()
}

func (f *nft) addElements(c *nftables.Conn, ts []target) error {
	return f.eachChunk(ts, c.SetAddElements)
}

func (f *nft) deleteElements(c *nftables.Conn, ts []target) error {
	return f.eachChunk(ts, c.SetDeleteElements)
}

func (f *nft) eachChunk(ts []target, op func(*nftables.Set, []nftables.SetElement) error) error {
	type kind struct{ is4, exact bool }
	byMap := map[kind][]nftables.SetElement{}
	for _, t := range ts {
		k := kind{t.Addr.Is4(), t.HostIP.IsValid()}
		byMap[k] = append(byMap[k], t.element())
	}
	for k, elems := range byMap {
		for len(elems) > 0 {
			n := min(len(elems), elementsPerMessage)
			if err := op(f.hostPortMap(k.is4, k.exact), elems[:n]); err != nil {
				return err
			}
			elems = elems[n:]
		}
	}
	return nil
}

// exists reports whether the table is in the kernel.
func (f *nft) exists() (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	t, err := c.ListTableOfFamily(f.table.Name, f.table.Family)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return t != nil, err
}

// drop removes the table and with it every rule of ours.
func (f *nft) drop() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(f.table)
	c.DelTable(f.table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot remove nftables table %s: %w", f.table.Name, err)
	}
	return nil
}

// addRules adds the chains. In nft's words:
//
//	chain guard       { type filter hook prerouting priority raw; }
//	chain prerouting  { type nat hook prerouting priority dstnat; }
//	chain output      { type nat hook output priority dstnat; }
//	chain hostports   { }
//	chain postrouting { type nat hook postrouting priority srcnat; }
func (f *nft) addRules(c *nftables.Conn) {
	base := func(name string, typ nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: name, Table: f.table, Type: typ, Hooknum: hook, Priority: prio})
	}
	rule := func(ch *nftables.Chain, parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		c.AddRule(&nftables.Rule{Table: f.table, Chain: ch, Exprs: all})
	}

	// The bridge has route_localnet, so that a connection from 127.0.0.1 can be
	// led to a pod. Without this rule pods could in turn reach what listens on
	// the host's loopback only (CVE-2020-8558).
	guard := base("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	rule(guard, iifname(f.bridge), family(true), address(true, destination, netip.MustParsePrefix("127.0.0.0/8"), expr.CmpOpEq), verdict(expr.VerdictDrop, ""))

	hostports := c.AddChain(&nftables.Chain{Name: "hostports", Table: f.table})
	for _, cidr := range f.cidrs {
		is4 := cidr.Addr().Is4()
		rule(hostports, family(is4), lookupTarget(is4, f.hostPortMap(is4, true), true))
		rule(hostports, family(is4), lookupTarget(is4, f.hostPortMap(is4, false), false))
	}
	pre := base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	rule(pre, toLocal(), verdict(expr.VerdictJump, hostports.Name))
	out := base("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	rule(out, toLocal(), verdict(expr.VerdictJump, hostports.Name))

	post := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	// From the host's loopback to a pod: the pod must be able to answer.
	rule(post, oifname(f.bridge, expr.CmpOpEq), family(true), address(true, source, netip.MustParsePrefix("127.0.0.0/8"), expr.CmpOpEq), masquerade())
	for _, cidr := range f.cidrs {
		is4 := cidr.Addr().Is4()
		multicast := netip.MustParsePrefix("ff00::/8")
		if is4 {
			multicast = netip.MustParsePrefix("224.0.0.0/4")
		}
		// From a pod through a host port to itself or a neighbour: the answer
		// must come back through here and not straight over the bridge.
		rule(post, oifname(f.bridge, expr.CmpOpEq), family(is4), address(is4, source, cidr, expr.CmpOpEq), wasDNAT(), masquerade())
		// From a pod to the world.
		rule(post, oifname(f.bridge, expr.CmpOpNeq), family(is4), address(is4, source, cidr, expr.CmpOpEq),
			address(is4, destination, cidr, expr.CmpOpNeq), address(is4, destination, multicast, expr.CmpOpNeq), masquerade())
	}
}

type side bool

const (
	source      side = false
	destination side = true
)

func linkName(name string) []byte { return append([]byte(name), make([]byte, 16-len(name))...) }

func iifname(name string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: linkName(name)},
	}
}

func oifname(name string, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: linkName(name)},
	}
}

func family(is4 bool) []expr.Any {
	n := byte(unix.NFPROTO_IPV6)
	if is4 {
		n = unix.NFPROTO_IPV4
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{n}},
	}
}

// addressField loads an address of the packet into a register.
func addressField(is4 bool, s side, register uint32) *expr.Payload {
	p := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader}
	switch {
	case is4 && s == source:
		p.Offset, p.Len = 12, 4
	case is4:
		p.Offset, p.Len = 16, 4
	case s == source:
		p.Offset, p.Len = 8, 16
	default:
		p.Offset, p.Len = 24, 16
	}
	return p
}

func address(is4 bool, s side, in netip.Prefix, op expr.CmpOp) []expr.Any {
	load := addressField(is4, s, 1)
	mask := make([]byte, load.Len)
	for i := range in.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: load.Len, Mask: mask, Xor: make([]byte, load.Len)},
		&expr.Cmp{Op: op, Register: 1, Data: in.Masked().Addr().AsSlice()},
	}
}

// toLocal matches packets for an address of the host.
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// wasDNAT matches packets of connections whose destination was rewritten.
func wasDNAT() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(ctStatusDNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// lookupTarget sends a packet where the map says. Registers from 8 on are those
// of 4 bytes; the key and then the target start at the first of them.
func lookupTarget(is4 bool, set *nftables.Set, exact bool) []expr.Any {
	const first = unix.NFT_REG32_00
	words, fam := uint32(4), uint32(unix.NFPROTO_IPV6)
	if is4 {
		words, fam = 1, unix.NFPROTO_IPV4
	}
	var es []expr.Any
	next := uint32(first)
	if exact {
		es = append(es, addressField(is4, destination, next))
		next += words
	}
	return append(es,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: fam, RegAddrMin: first, RegProtoMin: first + words, Specified: true},
	)
}

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}
