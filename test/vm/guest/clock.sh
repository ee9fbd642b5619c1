#!/bin/sh
# The clock is set an hour forward, then two hours back, while pods run: nothing
# restarts, no probe is made up for, waits and deadlines last what they should.
set -eu
. guest/lib.sh

uptime_s() { cut -d. -f1 /proc/uptime; }
restarts() { berth ps "$1" -o json | sed -n 's/.*"restartCount": *\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'; }
marks() { berth exec steady -c web -- /berth-demo cat /probes/marks | tr -dc x | wc -c; }
lines() { grep -c . /tmp/follow || :; }
set_clock() { # by so many seconds
	date -s "@$(($(date +%s) + $1))"
	echo "the clock was set by $1 s, at $(uptime_s) s"
}
# unmoved: the steady pod is as it was, and its log goes on. A period is 5 s; a
# storm would be hundreds.
unmoved() {
	local since marked seen
	since=$(uptime_s) marked=$(marks) seen=$(lines)
	eventually "[ \$(lines) -gt $((seen + 5)) ]" # one line a second
	eventually "[ \$(marks) -gt $((marked + 1)) ]"
	local now limit
	now=$(marks)
	limit=$((marked + ($(uptime_s) - since) / 5 + 3))
	[ "$now" -le "$limit" ] || fail "$now probes, want $limit at most"
	[ "$(restarts steady)" = 0 ] || fail "something restarted"
	[ "$ids" = "$(containers)" ] || fail "containers are others"
	! grep -q 'Unhealthy\|not ready' /tmp/after || fail "readiness flapped: $(cat /tmp/after)"
}
containers() { find /sys/fs/cgroup/berth/*/pod* -mindepth 1 -maxdepth 1 -type d | grep "$uid"; }

step "pods run"
eventually "berth run --detach guest/clock.yaml" # its agent starts slowly
began=$(uptime_s)
eventually "berth ps | grep -q '^default *steady *ready'"
uid=$(berth ps -o wide | awk '$2 == "steady" {print $NF}')
ids=$(containers)
berth logs -f steady -c ticker >/tmp/follow &
follower=$!
berth run -o plain --no-logs guest/clock.yaml >/tmp/told 2>&1 & # tells each change
teller=$!
eventually "[ \$(marks) -gt 1 ]"
eventually "[ \$(restarts crashing) -ge 2 ]"
told=$(wc -l </tmp/told)
after() { tail -n +"$((told + 1))" /tmp/told | grep '^steady' >/tmp/after || :; }

for by in 3600 -7200 3600; do
	step "the clock is set by $by s"
	before=$(restarts crashing) at=$(uptime_s)
	set_clock $by
	after
	unmoved
	# The first time it has a while to go yet.
	if [ $(($(uptime_s) - began)) -lt 165 ]; then
		berth ps | grep -q '^default *limited *ready' || fail "the pod with a deadline ended early: $(berth ps)"
	fi
	# No wait is cut short: of 20 s and more, one start at most comes at once.
	now=$(restarts crashing)
	[ $((now - before)) -le $((1 + ($(uptime_s) - at) / 20)) ] || fail "crashing started $before and then $now times in $(($(uptime_s) - at)) s"
done

step "the deadline holds by the time that passed"
eventually "berth ps -o json | grep -q DeadlineExceeded"
took=$(($(uptime_s) - began))
[ $took -ge 170 ] || fail "it ended after $took s"

step "waits go on growing, and end"
before=$(restarts crashing)
eventually "[ \$(restarts crashing) -gt $before ]"

step "a stop lasts its grace period"
at=$(uptime_s)
berth stop stubborn &
stopper=$!
sleep 3
set_clock 3600
sleep 3
kill -0 $stopper || fail "it was killed early"
set_clock -3600
wait $stopper
[ $(($(uptime_s) - at)) -ge 24 ] || fail "it was killed after $(($(uptime_s) - at)) s"
[ $(($(uptime_s) - at)) -le 120 ] || fail "it was killed only after $(($(uptime_s) - at)) s"

step "an agent that starts after the clock was set back restarts nothing"
kill -9 "$(agent)"
set_clock -3600
told=$(wc -l </tmp/told)
berth ps
after
unmoved

kill -9 $follower $teller 2>/dev/null || :
sort /tmp/follow | uniq -d | grep . && fail "lines came twice" || :
berth cleanup --yes
nothing_left
