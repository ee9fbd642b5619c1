package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// errNoConf says that a folder holds no configuration.
var errNoConf = errors.New("there is no CNI configuration")

// conf is the configuration of a network.
type conf struct {
	list  *libcni.NetworkConfigList
	whole json.RawMessage // the list with every plugin in it, wherever they were read from
	file  string
}

// readConf reads the first configuration of a folder, by name. One that is taken
// away while it is read is as one that was never there.
func readConf(dir string) (*conf, error) {
	const enough = 100 // a link that leads nowhere is not there each time
	for try := 1; ; try++ {
		file, err := firstFile(dir)
		if err != nil {
			return nil, err
		}
		c, err := readFile(file)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || try == enough {
			return nil, fmt.Errorf("cannot use the CNI configuration %s: %w", file, err)
		}
	}
}

// firstFile is the file of a folder that counts.
func firstFile(dir string) (string, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return "", fmt.Errorf("cannot look for CNI configurations: %w", err)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%w in %s", errNoConf, dir)
	}
	return slices.Min(files), nil
}

// readFile reads and checks one configuration.
func readFile(file string) (*conf, error) {
	list, err := readList(file)
	if err != nil {
		return nil, err
	}
	// The concrete type would make an error of no error.
	if invalid := utils.ValidateNetworkName(list.Name); invalid != nil {
		return nil, invalid
	}
	whole, err := wholeList(list)
	if err != nil {
		return nil, err
	}
	return &conf{list: list, whole: whole, file: file}, nil
}

// readList reads a list of plugins, or a single one as a list.
func readList(file string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(file, ".conflist") {
		return libcni.NetworkConfFromFile(file)
	}
	one, err := libcni.ConfFromFile(file) //nolint:staticcheck // files of this kind are still in use
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(one) //nolint:staticcheck // as above
}

// wholeList renders a list so that it can be read again without the files that
// its plugins may have of their own.
func wholeList(list *libcni.NetworkConfigList) (json.RawMessage, error) {
	plugins := make([]json.RawMessage, 0, len(list.Plugins))
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	return json.Marshal(map[string]any{
		"name": list.Name, "cniVersion": list.CNIVersion, "plugins": plugins,
		"disableCheck": list.DisableCheck, "disableGC": list.DisableGC,
	})
}

// programs lists the plugins that a configuration needs, those for addresses
// among them.
func programs(list *libcni.NetworkConfigList) []string {
	var names []string
	for _, p := range list.Plugins {
		names = append(names, p.Network.Type)
		if !p.Network.IPAM.IsEmpty() {
			names = append(names, p.Network.IPAM.Type)
		}
	}
	return names
}

// takes reports whether a plugin of the list wants to be told of a capability.
func takes(list *libcni.NetworkConfigList, capability string) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[capability] })
}
