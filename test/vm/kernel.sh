#!/usr/bin/env bash
# Unpacks the distribution's kernel for virtual machines into a folder, with the
# modules that pods need. Nothing is installed.
#
#   test/vm/kernel.sh DIR
set -euo pipefail
dir=$1
if [ -e "$dir/vmlinuz" ]; then
	exit 0
fi

# Debian's name, then Ubuntu's, of the package that depends on the newest one.
for name in linux-image-cloud-amd64 linux-image-virtual; do
	package=$(apt-cache depends "$name" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	[ -z "$package" ] || break
done
if [ -z "$package" ]; then
	echo "cannot find a kernel for the machine: apt knows neither linux-image-cloud-amd64 nor linux-image-virtual (apt-get update)" >&2
	exit 1
fi
echo "unpacking $package"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt fetches as a user of its own
(cd "$work" && apt-get download -q "$package" >/dev/null && dpkg -x "$package"_*.deb .)

version=$(basename "$work"/lib/modules/*)
from=lib/modules/$version
mkdir -p "$dir/modules/$from"
# Bridges, veths, firewall, overlay and the disk; what they depend on lies in lib
# and crypto.
(cd "$work" && cp -r --parents "$from"/kernel/{net/{802,8021q,bridge,llc,netfilter,ipv4/netfilter,ipv6/netfilter},lib,crypto,fs/overlayfs,drivers/virtio,drivers/block/virtio_blk.ko*,drivers/net/veth.ko*,drivers/net/dummy.ko*} "$dir/modules/")
cp "$work/$from"/modules.{builtin,order} "$dir/modules/$from/"
busybox depmod -b "$dir/modules" "$version"
mv "$work/boot/vmlinuz-$version" "$dir/vmlinuz"
