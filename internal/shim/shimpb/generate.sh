#!/bin/sh
# Regenerates the Go code of shim.proto with the plugins pinned in go.mod.
# Needs protoc (Debian: protobuf-compiler).
set -eu
protoc --plugin="protoc-gen-go=$(go tool -n protoc-gen-go)" \
	--plugin="protoc-gen-go-ttrpc=$(go tool -n protoc-gen-go-ttrpc)" \
	--go_out=. --go_opt=paths=source_relative \
	--go-ttrpc_out=. --go-ttrpc_opt=paths=source_relative shim.proto
