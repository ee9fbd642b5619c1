#!/usr/bin/env bash
# Installs what the virtual machine needs and is missing (Debian, Ubuntu).
set -euo pipefail

missing=()
command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
command -v busybox >/dev/null && busybox --list | grep -qx switch_root || missing+=(busybox-static)
command -v cpio >/dev/null || missing+=(cpio)
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
	sudo=(sudo)
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get -qq update
"${sudo[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
