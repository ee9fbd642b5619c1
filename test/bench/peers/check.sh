#!/bin/bash
# Looks at what a kubelet makes of a runtime, beyond what nodebench measures:
# check.sh, after control-plane-up.sh and kubelet-up.sh, with the same variables.
# Prints a line for each thing looked at and ends with 1 if one is not as it should be.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:?folder of the binaries} DIR=${DIR:?folder for state} RUNTIME=${RUNTIME:-containerd}
N=$DIR/node-kubelet-1
k() { "$BIN/kubectl" --kubeconfig "$DIR/kubeconfig" "$@"; }
node() { curl -sk --max-time 20 "https://127.0.0.1:10250$1"; }
bad=0
# is NAME WANT COMMAND…: what the command prints (both streams) matches a pattern of bash
is() {
	local name=$1 want=$2 got
	shift 2
	got=$("$@" 2>&1)
	# shellcheck disable=SC2053
	if [[ $got == $want ]]; then echo "ok      $name"; else
		echo "FAILED  $name: got ${got:0:600}, want $want"
		bad=1
	fi
}
# eventually is is, tried for half a minute
eventually() {
	local name=$1 want=$2 got
	shift 2
	for _ in $(seq 60); do
		got=$("$@" 2>&1)
		# shellcheck disable=SC2053
		[[ $got == $want ]] && break
		sleep 0.5
	done
	is "$name" "$want" echo "$got"
}
# of POD PATH…: values in a pod, with spaces between
of() { local pod=$1 path; shift; path=$(printf ' {%s}' "$@"); k get pod "$pod" -o "jsonpath=${path:1}"; }
in_pod() { k exec "$1" -c "$2" -- sh -c "$3"; }
ids() { k get pods web typed shared hosts mapped imaged -o 'jsonpath={range .items[*]}{range .status.containerStatuses[*]}{.containerID}{"/"}{.restartCount}{" "}{end}{end}'; }

for _ in $(seq 60); do k get serviceaccount default >/dev/null 2>&1 && break; sleep 0.5; done
k apply -f "$HERE/check.yaml" >/dev/null
for pod in web typed shared hosts mapped imaged; do
	is "$pod is ready" '*condition met' k wait --for=condition=Ready "pod/$pod" --timeout=60s
done

is 'logs' $'line one\nline two' k logs web -c httpd
is 'logs with times' '20*Z line one*' k logs web -c httpd --timestamps
is 'logs --tail' 'line two' k logs web -c httpd --tail=1
eventually 'logs --previous' 'attempt' k logs crash --previous
is 'init and sidecar wrote to the volume' $'from-init\nstarted\n20*' in_pod web httpd 'cat /data/init /data/hook; ls /data/sidecar >/dev/null && date +%Y'
is 'user and groups' 'uid=1000 gid=1001 groups=1001,2000,3000' in_pod web httpd id
is 'files of the volume have fsGroup' '2000' in_pod web httpd 'stat -c %g /data/init'
is 'root file system is read-only' '*Read-only file system*' in_pod web httpd 'touch /x; true'
is 'no capabilities, no new privileges, seccomp' $'CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2' in_pod web httpd 'grep -E "CapBnd|NoNewPrivs|Seccomp:" /proc/self/status'
is 'config map, secret, downward API' 'served of-the-secret app="web"' in_pod web httpd 'echo $(cat /www/index.html) $(cat /secret/key) $(cat /pod/labels)'
is 'memory volume' 'tmpfs 1024' in_pod web httpd 'echo $(df -k /memory | awk "NR==2{print \$1, \$2}")'
is 'environment' 'kubelet-1 of-the-secret web' in_pod web httpd 'echo $NODE $KEY $(hostname)'
is 'service account' '*ca.crt*namespace*token*' in_pod web httpd 'ls /var/run/secrets/kubernetes.io/serviceaccount'
is 'exit code of exec' '*exit code 7' in_pod web httpd 'exit 7'
piped() { echo "to the program" | k exec -i web -c httpd -- cat; }
is 'exec with stdin' 'to the program' piped
large() { head -c 3000000 /dev/zero | k exec -i web -c httpd -- wc -c; }
is 'exec with much stdin' '3000000' large
terminal() { script -qec "stty rows 33 cols 99; '$BIN/kubectl' --kubeconfig '$DIR/kubeconfig' exec -it web -c httpd -- sh -c 'sleep 0.5; stty size'" /dev/null </dev/null; }
is 'exec with a terminal' '*33 99*' terminal
attached() { (echo hello; sleep 2) | timeout 4 "$BIN/kubectl" --kubeconfig "$DIR/kubeconfig" attach -i typed; }
is 'attach' '*got hello*' attached
is 'attached output is in the log' '*got hello*' k logs typed
forwarded() {
	k port-forward pod/web 18081:http >/dev/null 2>&1 &
	local pid=$!
	for _ in $(seq 50); do curl -s --max-time 2 http://127.0.0.1:18081/index.html && break; sleep 0.1; done
	kill $pid; wait $pid 2>/dev/null
}
is 'port-forward' 'served' forwarded
is 'host port' 'served' curl -s --max-time 5 "http://10.77.0.1:18080/index.html"
is 'pod address' 'served' curl -s --max-time 5 "http://$(of web .status.podIP):8080/index.html"
is 'copy' 'from-init' bash -c "'$BIN/kubectl' --kubeconfig '$DIR/kubeconfig' exec web -c httpd -- tar cf - -C /data init | tar xOf -"
is 'shared pid namespace' '*sleep 100001*sleep 100002*' in_pod shared one 'ps -o args'
is 'sysctl, host alias' '80 10.1.2.3?elsewhere' in_pod shared one 'echo $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start) "$(grep elsewhere /etc/hosts)"'
is 'host network and pids' "$(hostname) *" in_pod hosts c 'echo $(hostname) $(ps -o args | grep -c kubelet)'
is 'user namespace' '0 * 65536 mine 0' in_pod mapped c 'echo $(awk "{print \$1, \$2, \$3}" /proc/self/uid_map) $(cat /data/file) $(stat -c %u /data/file)'
is 'its root is not the machine’s' '[1-9]*' bash -c "stat -c %u /proc/\$(pgrep -xf 'sleep 100004' | head -n1)"
is 'image volume' '/tools/bin/busybox' in_pod imaged c 'ls /tools/bin/busybox'
k debug web --image=docker.io/library/busybox:1.36 --target=httpd -c debug -- sh -c 'ps -o args; sleep 1' >/dev/null 2>&1
eventually 'ephemeral container in the pids of another' '*httpd -f -p 8080*' k logs web -c debug
eventually 'job' '1' k get job job -o 'jsonpath={.status.succeeded}'
eventually 'out of memory' 'OOMKilled 137' of hungry '.status.containerStatuses[0].state.terminated.reason' '.status.containerStatuses[0].state.terminated.exitCode'
eventually 'crash: exit code and message' '3 why*' of crash '.status.containerStatuses[0].lastState.terminated.exitCode' '.status.containerStatuses[0].lastState.terminated.message'
eventually 'a command that is missing' '*StartError* 128 *no/such/program*' of unstartable '.status.containerStatuses[0].state.terminated.reason' '.status.containerStatuses[0].state.terminated.exitCode' '.status.containerStatuses[0].state.terminated.message'
eventually 'an image that is missing' '*Pull*' of unpullable '.status.containerStatuses[0].state.waiting.reason'
numbers() { zcat -f "$N"/pod-logs/default_chatty_*/c/0.log* | awk '{print $NF}' | sort -n | awk '$1!=n++{bad=1} END{print n, bad ? "with gaps" : "in a row"}'; }
eventually 'a log that the kubelet rotates' '40000 in a row' numbers
is 'it was rotated' '*/0.log.*' bash -c "echo '$N'/pod-logs/default_chatty_*/c/0.log.*"
is 'resize' '*patched' k patch pod web --subresource=resize -p '{"spec":{"containers":[{"name":"httpd","resources":{"requests":{"cpu":"60m"},"limits":{"cpu":"600m","memory":"80Mi"}}}]}}'
eventually 'resize is reported, nothing restarted' '600m 80Mi 0' of web '.status.containerStatuses[0].resources.limits.cpu' '.status.containerStatuses[0].resources.limits.memory' '.status.containerStatuses[0].restartCount'

before=$(ids)
# From here on with figures from the runtime instead of cAdvisor.
"$HERE/../again.sh" "$DIR/pids/kubelet" "$N/log/kubelet.log" --feature-gates=PodAndContainerStatsFromCRI=true
sleep 3
eventually 'kubelet killed: healthy again' 'ok' curl -s http://127.0.0.1:10248/healthz
sleep 5
is 'kubelet killed: nothing restarted' "$before" ids
"$HERE/../again.sh" "$DIR/pids/$RUNTIME" "$N/log/$RUNTIME.log"
sleep 1
eventually 'runtime killed: exec works again' 'up' in_pod web httpd 'echo up'
eventually 'runtime killed: node is ready' 'True' k get node kubelet-1 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
sleep 5
is 'runtime killed: nothing restarted' "$before" ids
is 'runtime killed: pods are ready' '*condition met' k wait --for=condition=Ready pod/web --timeout=20s

summary() { node /stats/summary | python3 -c '
import json, sys
s = json.load(sys.stdin)
wrong = []
def ok(what, v, low, high):
    if v is None or not low <= v <= high: wrong.append(f"{what}={v}")
pod = [p for p in s["pods"] if p["podRef"]["name"] == "web"][0]
ok("pod memory", pod.get("memory", {}).get("workingSetBytes"), 1e5, 1e8)
ok("pod cpu", pod.get("cpu", {}).get("usageCoreNanoSeconds"), 1e6, 1e12)
ok("received", pod.get("network", {}).get("rxBytes"), 1000, 1e9)
ok("processes", pod.get("process_stats", {}).get("process_count"), 2, 100)
c = [c for c in pod["containers"] if c["name"] == "httpd"][0]
ok("memory", c.get("memory", {}).get("workingSetBytes"), 1e4, 8.4e7)
ok("available", c.get("memory", {}).get("availableBytes"), 1e6, 8.4e7)
ok("cpu", c.get("cpu", {}).get("usageCoreNanoSeconds"), 1e6, 1e12)
ok("rootfs", c.get("rootfs", {}).get("usedBytes"), 0, 1e7)
ok("logs", c.get("logs", {}).get("usedBytes"), 1, 1e6)
ok("volumes", len(pod.get("volume", [])), 5, 9)
ok("image fs used", s["node"]["runtime"]["imageFs"].get("usedBytes"), 1e5, 1e9)
ok("image fs capacity", s["node"]["runtime"]["imageFs"].get("capacityBytes"), 1e9, 1e15)
ok("container fs used", s["node"]["runtime"].get("containerFs", {}).get("usedBytes"), 0, 1e9)
print("sane" if not wrong else "not sane: " + ", ".join(wrong))'; }
eventually 'stats/summary' 'sane' summary
metrics() { node /metrics/cadvisor | grep -c "^$1{.*container=\"httpd\".*pod=\"web\""; }
for m in container_cpu_usage_seconds_total container_memory_working_set_bytes container_memory_rss container_spec_memory_limit_bytes container_start_time_seconds; do
	eventually "metrics/cadvisor $m" '[1-9]*' metrics $m
done
eventually "metrics/resource" '[1-9]*' bash -c "curl -sk https://127.0.0.1:10250/metrics/resource | grep -c 'container_memory_working_set_bytes{.*web'"

k delete -f "$HERE/check.yaml" --timeout=60s >/dev/null
is 'all pods are gone' '*No resources found*' k get pods
exit $bad
