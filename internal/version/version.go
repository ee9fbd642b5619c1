// Package version says which berth this is.
package version

import "runtime/debug"

// version is set by the linker; see the Makefile.
var version string

// String is the version, with the commit where the build knows it.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}
