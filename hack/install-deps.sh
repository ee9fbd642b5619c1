#!/usr/bin/env bash
# Installs the system packages that building and testing berth need and that are
# missing. Prints nothing when all is there.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # of others than root, it may lack these

need() { # need PACKAGE TEST…
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || missing+=("$package")
}
look() {
	missing=()
	need gcc command -v gcc
	need libc6-dev test -e /usr/include/stdlib.h
	need pkg-config command -v pkg-config
	need libseccomp-dev pkg-config --exists libseccomp
	need git command -v git
	need curl command -v curl
	# internal/cri/network/cni runs real plugins; portmap calls iptables.
	need containernetworking-plugins test -x /usr/lib/cni/bridge
	need iptables command -v iptables
	# test/cri unpacks busybox with ldd's help; critest calls ipcmk.
	need libc-bin command -v ldd
	need util-linux command -v ipcmk
	# Runtime handlers are tested with real OCI runtimes.
	need runc command -v runc
	need crun command -v crun
}

look
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "berth needs these packages, and this machine has no apt-get to install them: ${missing[*]}" >&2
	exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
	sudo=(sudo)
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get -qq update
# It fails for packages that were broken before, too.
"${sudo[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null || failed=$?
look
if [ ${#missing[@]} -gt 0 ]; then
	echo "cannot install ${missing[*]}" >&2
	exit "${failed:-1}"
fi
