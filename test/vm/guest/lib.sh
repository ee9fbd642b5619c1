# Sourced by the scripts. Everything is about ten times slower than usual here.

export PATH="$PATH:/berth/bin"

# A script that fails shows what the agent said.
trap "[ \$? = 0 ] || tell" EXIT
tell() {
	berth ps -o wide
	for p in $(berth ps | awk "NR > 1 {print \$2}"); do
		berth logs "$p" --all-containers --tail 5
	done
	for f in /var/lib/berth/agent.log /run/berth/shim/*log; do
		echo "--- $f"
		tail -n 60 "$f"
	done
}

step() { echo "--- $*, at $(cut -d. -f1 /proc/uptime) s"; }

fail() {
	echo "FAILED: $*"
	exit 1
}

# is FILE VALUE: the file holds the value.
is() { [ "$(cat "$1")" = "$2" ] || fail "$1 is $(cat "$1"), want $2"; }

# eventually COMMAND: it succeeds within five minutes.
eventually() {
	local end=$(($(cut -d. -f1 /proc/uptime) + 300))
	until eval "$1"; do
		[ "$(cut -d. -f1 /proc/uptime)" -lt $end ] || fail "never happened: $1"
		sleep 1
	done
}

# agent prints the process of the agent in the background.
agent() {
	for p in /proc/[0-9]*; do
		if { tr "\0" " " <"$p/cmdline"; } 2>/dev/null | grep -q "^[^ ]*berth agent"; then
			basename "$p"
		fi
	done
}

# nothing_left: of what berth makes, nothing is there.
nothing_left() {
	[ -z "$(find /sys/fs/cgroup -name '*berth*')" ] || fail "cgroups are left: $(find /sys/fs/cgroup -name '*berth*')"
	! grep -v ' /berth /berth ' /proc/self/mountinfo | grep berth || fail "mounts are left"
	! ip link | grep -E 'berth|veth' || fail "links are left"
	[ ! -e /var/lib/berth ] && [ ! -e /run/berth ] || fail "files are left"
	! pidof berth-shim || fail "a shim is left"
}
