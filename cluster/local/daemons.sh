# Processes that outlive the command that started them.
# shellcheck shell=bash

# A process is known by its id AND its start time, so that an id given to
# another process meanwhile is never taken for ours.
start_time() { # PID: field 22 of its stat; field 2, the name, may hold spaces
  local stat
  { stat="$(<"/proc/$1/stat")"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$1" != Z ] && printf '%s\n' "${20}"
}

running() { # NAME: print its process id; fail if it does not run
  local pid ticks
  [ -s "$RUN/$1" ] && read -r pid ticks <"$RUN/$1" || return 1
  [ "$(start_time "$pid")" = "$ticks" ] && printf '%s\n' "$pid"
}

# Locks, ours and those of whoever called us (`flock FILE cluster restart ...`),
# are open files: a daemon that kept one would hold it for its whole life.
close_inherited() {
  local each number
  for each in "/proc/$BASHPID/fd"/*; do
    number="${each##*/}"
    ((number <= 2)) || eval "exec $number>&-"
  done
}

start() { # NAME COMMAND...: unless it runs
  local name=$1 pid
  shift
  running "$name" >/dev/null && return
  # (exec in a subshell: `setsid --fork` would hide the process id.)
  (close_inherited && cd / && exec setsid "$@" </dev/null >>"$LOGS/$name.log" 2>&1) &
  pid=$!
  disown
  printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$RUN/$name"
}

stop() { # NAME [SECONDS]: ask, wait, then kill
  local pid turns
  if pid="$(running "$1")"; then
    kill -TERM "$pid" 2>/dev/null || true
    for ((turns = ${2:-10} * 10; turns > 0; turns--)); do
      running "$1" >/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$RUN/$1"
}

wait_for() { # SECONDS WHAT COMMAND...: until it succeeds
  local turns=$(($1 * 5)) what=$2
  shift 2
  for (( ; turns > 0; turns--)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  die "timed out while waiting for $what; see the logs in $LOGS"
}
