// Package shimpb holds the generated messages and the ttrpc service of the
// protocol between berth and berth-shim. Nothing here is written by hand but
// shim.proto; internal/shim gives the protocol its meaning.
package shimpb

//go:generate ./generate.sh
