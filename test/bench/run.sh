#!/usr/bin/env bash
# Measures berth, and beside it, in the same run, the kubelet with containerd.
# Usage: run.sh [--no-peers|--cri] [TEST…]   tests: start bare burst restart probes comeback
# With --cri it is the kubelet with berth cri that is measured beside the kubelet
# with containerd, and what the kubelet complains of, and what it does with pods
# (peers/check.sh).
# The peers are built once into .cache/bench (eight minutes on two cores).
set -euo pipefail
cd "$(dirname "$0")/../.."
peers=yes
default=bare,start,burst,restart,probes,comeback
case ${1:-} in
--no-peers) peers=no; shift ;;
--cri) peers=cri; shift ;;
esac
tests=$(IFS=,; echo "${*:-$default}")
cache=$PWD/.cache/bench
mkdir -p "$cache/images"
if [ "$(id -u)" -ne 0 ]; then
	echo "make bench needs root: pods do" >&2
	exit 1
fi

missing=()
command -v busybox >/dev/null || missing+=(busybox-static)
if [ "$peers" != no ]; then
	[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
	command -v iptables >/dev/null || missing+=(iptables)
	command -v ip >/dev/null || missing+=(iproute2)
	command -v openssl >/dev/null || missing+=(openssl)
fi
if [ ${#missing[@]} -gt 0 ]; then
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
go build -o "$cache/nodebench" ./test/bench/nodebench
if [ ! -f "$cache/images/busybox.tar" ]; then
	gcc -static -Os -o "$cache/images/pause" test/bench/images/pause/pause.c
	go run ./test/bench/images -o "$cache/images" -busybox "$(command -v busybox)" -pause "$cache/images/pause"
fi
work=$(mktemp -d)
chmod 711 "$work" # users of pods' user namespaces pass through
scratch=$work/scratch
mkdir "$scratch"

peer() {
	export BIN=$cache/peers DIR=$work/peer
	test/bench/peers/build.sh kubernetes etcd containerd runc >&2
	trap 'test/bench/peers/down.sh; rm -rf "$work"' EXIT
	test/bench/peers/control-plane-up.sh >&2
	IMAGES="$cache/images/pause.tar $cache/images/busybox.tar" test/bench/peers/kubelet-up.sh >&2
	"$cache/nodebench" -kubeconfig "$DIR/kubeconfig" -node kubelet-1 -scratch "$scratch" -tests "$tests" \
		-restart-agent "test/bench/again.sh $DIR/pids/kubelet $DIR/kubelet-again.log" \
		-procs 'kubelet=kubelet --config,containerd=containerd -c,shim=/containerd-shim-runc-v2 ,pause=^/pause' >"$cache/peer.json"
	test/bench/peers/down.sh
}

# under_kubelet RUNTIME: the kubelet with containerd or with berth cri
under_kubelet() {
	local runtime='containerd -c|/containerd-shim-runc-v2 |^/pause'
	[ "$1" = containerd ] || runtime="berth cri --root $work/|berth-shim serve --run $work/"
	export BIN=$cache/peers DIR=$work/$1 RUNTIME=$1 BERTH=${BERTH:-$PWD/bin/berth}
	test/bench/peers/build.sh kubernetes etcd containerd runc >&2
	trap 'test/bench/peers/down.sh; rm -rf "$work"' EXIT
	test/bench/peers/control-plane-up.sh >&2
	IMAGES="$cache/images/pause.tar $cache/images/busybox.tar" test/bench/peers/kubelet-up.sh >&2
	"$cache/nodebench" -kubeconfig "$DIR/kubeconfig" -node kubelet-1 -scratch "$scratch" -tests "$tests" \
		-restart-agent "test/bench/again.sh $DIR/pids/$1 $DIR/$1-again.log" \
		-procs "kubelet=kubelet --config,runtime=$runtime" >"$cache/cri-$1.json"
	test/bench/peers/check.sh >"$cache/check-$1.txt" || true # told at the end
	test/bench/peers/down.sh
	cp "$DIR/node-kubelet-1/log/kubelet.log" "$cache/kubelet-$1.log"
}

berth() {
	local root=$work/berth run=$work/run
	command=(bin/berth --root "$root" --run "$run")
	trap '"${command[@]}" cleanup --force >&2; rm -rf "$work"' EXIT
	"${command[@]}" image import "$cache/images/busybox.tar" >&2
	setsid "${command[@]}" agent >"$work/berth.log" 2>&1 </dev/null &
	for _ in $(seq 100); do
		[ -S "$run/berth.sock" ] && break
		sleep 0.05
	done
	"$cache/nodebench" -socket "$run/berth.sock" -scratch "$scratch" -tests "$tests" \
		-restart-agent "test/bench/again.sh $root/agent.lock $work/berth-again.log" \
		-procs "berth=bin/berth --root .* agent,shim=berth-shim serve --run $run" >"$cache/berth.json"
}

echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)" >&2
if [ "$peers" = cri ]; then
	under_kubelet containerd
	under_kubelet berth
	go run ./test/bench/table -cri "$cache/cri-berth.json" "$cache/cri-containerd.json"
	echo
	for runtime in containerd berth; do
		echo "$(grep -c ^ok "$cache/check-$runtime.txt") checks of the kubelet over $runtime went well$(grep -v ^ok "$cache/check-$runtime.txt" | sed '1s/^/, but:\n/')"
	done
	echo
	go run ./test/bench/kubeletlog "$cache/kubelet-berth.log" "$cache/kubelet-containerd.log"
	! grep -q ^FAILED "$cache/check-berth.txt"
	exit
fi
if [ "$peers" = yes ]; then
	peer
fi
berth
go run ./test/bench/table "$cache/berth.json" $([ "$peers" = yes ] && echo "$cache/peer.json")
