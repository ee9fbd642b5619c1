#!/usr/bin/env bash
# Unpacks the distribution's busybox into a folder, with the libraries that it is
# linked with: what most images of critest consist of. Nothing is installed.
#
# It is not the static busybox: the shell in that runs its own ls even where a
# container may not see /bin/ls.
#
#   test/cri/busybox.sh DIR
set -euo pipefail
dir=$1
if [ -e "$dir/bin/busybox" ]; then
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt fetches as a user of its own
fetch() { (cd "$work" && apt-get download -q busybox >/dev/null); }
if ! fetch 2>/dev/null; then
	apt-get -qq update
	fetch
fi
dpkg -x "$work"/busybox_*.deb "$work/package"
program=$work/package/bin/busybox
[ -e "$program" ] || program=$work/package/usr/bin/busybox
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
	install -D -m 755 "$library" "$work/root$library"
done
install -D -m 755 "$program" "$work/root/bin/busybox"
mkdir -p "$(dirname "$dir")"
rm -rf "$dir"
mv "$work/root" "$dir"
