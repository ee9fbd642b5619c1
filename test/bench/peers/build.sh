#!/bin/bash
# Builds the peers that berth is measured and tested against into $BIN, each from its published Go module.
# Usage: BIN=dir ./build.sh [kubernetes] [etcd] [containerd] [runc] [critest] [crictl]   (none named: all)
# About 8 minutes on 2 cores; what is there already in its version is left. runc needs gcc, libseccomp-dev, pkg-config.
set -eu
BIN=$(realpath -m "${BIN:?set BIN to a folder}"); mkdir -p "$BIN"
KUBE=1.37.2 ETCD=3.6.15 CONTAINERD=2.4.2 RUNC=1.5.3 CRITOOLS=1.37.0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
module() { mkdir -p "$work/$1"; cd "$work/$1"; printf 'module peer\n\ngo 1.26.0\n' >go.mod; }

build_kubernetes() {
  module kubernetes
  go mod download k8s.io/kubernetes@v$KUBE
  src=$(go env GOMODCACHE)/k8s.io/kubernetes@v$KUBE
  { printf 'module peer\n\ngo 1.26.0\n\ntool (\n'
    for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do echo "	k8s.io/kubernetes/cmd/$c"; done
    printf ')\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' $KUBE
    sed -n '/^replace (/,/^)/p' "$src/go.mod" | sed -nE "s#^[[:space:]]*(k8s.io/[a-z-]+) => .*#	\1 => \1 v0.${KUBE#1.}#p"
    echo ')'; } >go.mod
  go mod tidy >/dev/null 2>&1
  go build -o "$BIN/" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kubectl}
}
build_etcd() { module etcd; go get -tool go.etcd.io/etcd/server/v3@v$ETCD 2>/dev/null; go build -o "$BIN/etcd" go.etcd.io/etcd/server/v3; }
build_containerd() {
  module containerd; p=github.com/containerd/containerd/v2/cmd
  go get -tool $p/containerd@v$CONTAINERD $p/ctr $p/containerd-shim-runc-v2 2>/dev/null
  go build -o "$BIN/" $p/{containerd,ctr,containerd-shim-runc-v2}
}
build_runc() { module runc; go get -tool github.com/opencontainers/runc@v$RUNC 2>/dev/null; go build -tags seccomp -o "$BIN/runc" github.com/opencontainers/runc; }
build_crictl() { module crictl; go get -tool sigs.k8s.io/cri-tools/cmd/crictl@v$CRITOOLS 2>/dev/null; go build -o "$BIN/crictl" sigs.k8s.io/cri-tools/cmd/crictl; }
build_critest() {
  module critest; go get sigs.k8s.io/cri-tools@v$CRITOOLS 2>/dev/null
  printf '//go:build tools\n\npackage tools\n\nimport _ "sigs.k8s.io/cri-tools/pkg/validate"\n' >tools.go
  go mod tidy >/dev/null 2>&1; go test -c -o "$BIN/critest" sigs.k8s.io/cri-tools/cmd/critest
}
# built MODULE VERSION PROGRAM…: they are there, of this version
built() {
  module=$1 version=$2; shift 2
  for program; do go version -m "$BIN/$program" 2>/dev/null | awk -v m="$module" -v v="v$version" '$2==m && $3==v{found=1} END{exit !found}' || return 1; done
}
built_kubernetes() { built k8s.io/kubernetes $KUBE kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; }
built_etcd() { built go.etcd.io/etcd/server/v3 $ETCD etcd; }
built_containerd() { built github.com/containerd/containerd/v2 $CONTAINERD containerd ctr containerd-shim-runc-v2; }
built_runc() { built github.com/opencontainers/runc $RUNC runc; }
built_crictl() { built sigs.k8s.io/cri-tools $CRITOOLS crictl; }
built_critest() { built sigs.k8s.io/cri-tools $CRITOOLS critest; }
for p in ${@:-kubernetes etcd containerd runc crictl critest}; do
  built_$p && continue
  echo "building $p"; (build_$p)
done
