package cni

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/berth-run/berth/internal/cri/network"
)

// statusTimeout bounds how long plugins are asked how they are.
const statusTimeout = 10 * time.Second

// Status says whether a sandbox could be connected: there is a configuration, its
// plugins are there, and those that can tell say that they are ready.
func (n *Network) Status(ctx context.Context) network.Status {
	c, err := readConf(n.cfg.ConfDir)
	return n.status(ctx, c, err)
}

func (n *Network) status(ctx context.Context, c *conf, err error) network.Status {
	loaded := "OK"
	if err != nil {
		loaded = err.Error()
	} else {
		err = n.ready(ctx, c)
	}
	return network.Status{Err: err, Info: map[string]string{
		"cniconfig": n.describe(c), "lastCNILoadStatus": loaded,
	}}
}

func (n *Network) ready(ctx context.Context, c *conf) error {
	if err := n.findPrograms(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return n.lib(n.cfg.BinDirs, nil).GetStatusNetworkList(ctx, c.list)
}

// findPrograms says which plugins are missing.
func (n *Network) findPrograms(c *conf) error {
	var errs []error
	for _, name := range programs(c.list) {
		_, err := plugins{}.FindInPath(name, n.cfg.BinDirs)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// description is what crictl info shows as cniconfig, in the words of containerd,
// which scripts read.
type description struct {
	PluginDirs       []string
	PluginConfDir    string
	PluginMaxConfNum int
	Prefix           string
	Networks         []describedNetwork
}

type describedNetwork struct {
	Config describedList
	IFName string
}

type describedList struct {
	Name       string
	CNIVersion string
	Plugins    []describedPlugin
	Source     string
}

type describedPlugin struct {
	Network *types.PluginConf
	Source  string
}

// describe tells what is in force; c may be nil.
func (n *Network) describe(c *conf) string {
	d := description{PluginDirs: n.cfg.BinDirs, PluginConfDir: n.cfg.ConfDir, PluginMaxConfNum: 1, Prefix: "eth"}
	if c != nil {
		list := describedList{Name: c.list.Name, CNIVersion: c.list.CNIVersion, Source: string(c.list.Bytes)}
		for _, p := range c.list.Plugins {
			list.Plugins = append(list.Plugins, describedPlugin{Network: p.Network, Source: string(p.Bytes)})
		}
		d.Networks = []describedNetwork{{Config: list, IFName: podLink}}
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
