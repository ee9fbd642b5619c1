#!/bin/sh
# A user's way through berth: pods run, limits hold, what is too greedy is killed,
# the agent may die, and nothing stays behind.
set -eu
. guest/lib.sh

step "a pod runs, answers, says something and obeys"
eventually "berth run -o plain --until ready --timeout 5m examples/hello.yaml" # the agent starts slowly
berth ps -o wide
address=$(berth ps -o json | sed -n 's/.*"podIP": *"\([^"]*\)".*/\1/p' | head -n 1)
wget -q -O - "http://$address:8080/healthz" | grep -q ok
berth exec hello -- /berth-demo echo "hello from inside" | grep -q "hello from inside"
berth logs hello | grep -q .

step "limits are in force"
berth run -o plain --until ready --timeout 5m guest/limited.yaml
pod=$(find /sys/fs/cgroup/berth* -maxdepth 1 -type d -name 'pod*')
c=$(find "$pod" -mindepth 1 -maxdepth 1 -type d | head -n 1)
for g in "$pod" "$c"; do
	is "$g/memory.max" 67108864
	is "$g/cpu.max" "50000 100000"
	is "$g/cpu.weight" 59
	is "$g/hugetlb.2MB.max" 4194304
done
is "$c/memory.oom.group" 1
berth exec limited -- /berth-demo cat /sys/fs/cgroup/memory.max | grep -qx 67108864

step "what uses more memory than it may is killed and said to be"
berth run --detach examples/resources.yaml
eventually "berth ps -o json | grep -q OOMKilled"

step "the agent is killed, and nothing restarts"
before=$(cat "$c/cgroup.procs")
kill -9 "$(agent)"
berth ps
berth exec limited -- /berth-demo echo again | grep -q again
[ "$before" = "$(cat "$c/cgroup.procs")" ]
berth run -o plain --until ready --timeout 5m guest/limited.yaml
[ "$before" = "$(cat "$c/cgroup.procs")" ]

step "pods stop, and nothing is left"
berth stop hello limited resources
berth ps
berth cleanup --yes
nothing_left
