#!/usr/bin/env bash
# Runs every test. Those that need root for real containers skip themselves
# without it, and say so; run as root they all run.
set -euo pipefail
cd "$(dirname "$0")/.."

tags=seccomp,netgo,osusergo
if [ "$(id -u)" -ne 0 ]; then
	echo "not root: tests with real containers will be skipped; use sudo make test to run them all" >&2
fi

# Everything but the tests of whole nodes, with the race detector; one package at
# a time, because some look at what the machine holds before and after.
go test -race -p 1 -timeout 20m -tags "$tags" $(go list ./... | grep -v -e /test/)
# Real containers, with the programs in bin/.
go test -tags "$tags" -timeout 20m ./test/...
# The core against the kubelet's own code: a module of its own.
(cd test/upstream && go test ./...)
# The container runtime against upstream's critest and crictl: another one.
(cd test/cri && go test -count=1 -timeout 20m ./...)
