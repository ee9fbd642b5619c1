#!/usr/bin/env bash
# Shows berth at work: runs examples/hello.yaml until it is Ready, asks it over
# HTTP, shows what runs and what it wrote, and stops it without a trace.
set -euo pipefail
cd "$(dirname "$0")/.."

sudo=()
if [ "$(id -u)" -ne 0 ]; then
	sudo=(sudo)
fi
root=$(mktemp -d)
berth=("${sudo[@]}" bin/berth --root "$root")
show() {
	printf '\n$ berth %s\n' "$*"
	"${berth[@]}" "$@"
}
trap '"${berth[@]}" cleanup --force >/dev/null; "${sudo[@]}" rm -rf "$root"' EXIT

show run --until ready --timeout 60s examples/hello.yaml
show ps -o wide
address=$("${berth[@]}" ps -o json | grep -o '"podIP": *"[^"]*"' | head -n 1 | cut -d'"' -f4)
printf '\n$ curl http://%s:8080/healthz\n' "$address"
curl -fsS --max-time 10 --noproxy '*' "http://$address:8080/healthz"
show logs hello
show exec hello -- /berth-demo echo "hello from inside"
show stop hello
show ps
echo
echo "the demo is over, and nothing of it is left"
