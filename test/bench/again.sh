#!/usr/bin/env bash
# Kills the process named in a file with SIGKILL and starts the same command
# again, with further arguments if there are any: again.sh PIDFILE LOG [ARGUMENT…]
set -euo pipefail
pid=$(tr -dc 0-9 <"$1")
mapfile -d '' -t command <"/proc/$pid/cmdline"
folder=$(readlink "/proc/$pid/cwd")
program=$(readlink "/proc/$pid/exe")
kill -9 "$pid"
while [ -e "/proc/$pid/cwd" ]; do sleep 0.001; done
cd "$folder"
setsid "$program" "${command[@]:1}" "${@:3}" >>"$2" 2>&1 </dev/null &
echo $! >"$1"
