#!/usr/bin/env bash
# Runs tests in a virtual machine with Debian's cloud kernel and cgroup v2 alone,
# which need not be what this machine has, and whose clock may be set:
#
#   test/vm/run.sh [NAME[=REGEXP]…]     default: $VM_TESTS, else smoke
#
# A NAME is a script of test/vm/guest or one of the packages below, of whose tests
# REGEXP picks some. Needs no root, but to install system packages that are
# missing. Works without KVM, ten times slower. VM_MEMORY (MiB), VM_CPUS,
# VM_KERNEL_ARGS and VM_TIMEOUT (seconds) change the machine.
set -euo pipefail
cd "$(dirname "$0")/../.."

# name → folder of the package
declare -A packages=(
	[cgroup]=internal/cgroup
	[shim]=internal/shim
	[cri]=internal/cri
	[network]=internal/cri/network
	[remote]=internal/podruntime/remote
	[integration]=test/integration
)
# Tests that build what they run in containers: in the machine a stand-in for
# "go build" hands out what is built here.
programs=(cmd/berth cmd/berth-shim cmd/berth-demo internal/shim/testdata/helper internal/cri/testdata/inside)

selected=("$@")
if [ $# = 0 ]; then
	read -ra selected <<<"${VM_TESTS:-smoke}"
fi
for s in "${selected[@]}"; do
	name=${s%%=*}
	if [ -z "${packages[$name]:-}" ] && [ ! -e "test/vm/guest/$name.sh" ]; then
		echo "there is no test \"$name\"; there are: $(cd test/vm/guest && echo *.sh | sed 's/\.sh\b//g') ${!packages[*]}" >&2
		exit 2
	fi
done

hack/install-deps.sh
test/vm/install-deps.sh
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth-vm
test/vm/kernel.sh "$cache"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree/berth
mkdir -p "$tree"/{bin,built}

static=(-tags "seccomp netgo osusergo" -ldflags "-s -w -extldflags -static")
for p in "${programs[@]}"; do
	cgo=0
	[ "$p" != cmd/berth-shim ] || cgo=1
	CGO_ENABLED=$cgo go build -trimpath "${static[@]}" -o "$tree/built/$(basename "$p")" "./$p"
done
ln -s ../built/berth ../built/berth-shim ../built/berth-demo "$tree/bin/"
cp -r examples "$tree/"
cp -r test/vm/guest "$tree/guest"
for s in "${selected[@]}"; do
	dir=${packages[${s%%=*}]:-}
	[ -n "$dir" ] || continue
	mkdir -p "$tree/$dir"
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o "$tree/$dir/tests" "./$dir"
	[ ! -d "$dir/testdata" ] || cp -r "$dir/testdata" "$tree/$dir/"
	printf '%s %s\n' "${s%%=*}" "$dir" >>"$tree/packages"
done
printf '%s\n' "${selected[@]}" >"$tree/selected"

# The machine's file system is what is unpacked into its memory.
mkdir -p "$work"/tree/{bin,new}
cp "$(command -v busybox)" "$work/tree/bin/busybox"
cp -r "$cache/modules/lib" "$work/tree/lib"
install -m 0755 test/vm/guest/init "$work/tree/init"
(cd "$work/tree" && find . -print0 | cpio --quiet --null -o -H newc) >"$work/initrd"

truncate -s 4G "$work/disk"
/sbin/mke2fs -q -t ext4 "$work/disk"

how=tcg,thread=multi
if [ -w /dev/kvm ]; then
	how=kvm
fi
timeout "${VM_TIMEOUT:-3600}" qemu-system-x86_64 -accel "$how" -cpu max \
	-smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-3072}" -nodefaults -nographic -serial stdio -no-reboot \
	-drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" -kernel "$cache/vmlinuz" -initrd "$work/initrd" \
	-append "console=ttyS0 no_timer_check quiet panic=-1 cgroup_no_v1=all hugepages=16 ${VM_KERNEL_ARGS:-}" </dev/null 2>"$work/qemu.log" |
	stdbuf -oL tr -d '\r' | tee "$work/console" || { cat "$work/qemu.log" >&2; echo "the machine did not end by itself" >&2; exit 1; }
code=$(sed -n 's/^vm: tests ended with \([0-9]*\)$/\1/p' "$work/console" | tail -n 1)
exit "${code:-1}"
