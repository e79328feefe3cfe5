# The machine as it was before `up`: only what `up` started is ended.
# shellcheck shell=bash

down() { # [--all]: programs, certificates and image archives too
  SECONDS=0
  [ "$(id -u)" = 0 ] || refuse "stopping the cluster requires root: try sudo"
  [ -d "$STATE" ] || return 0
  exec 9>"$STATE/lock"
  flock 9
  local name
  # Those that would start something again go first.
  for name in argo-server workflow-controller s3 kubelet kube-controller-manager kube-scheduler netpol kube-proxy; do stop $name; done
  end_containers
  for name in kube-apiserver etcd; do stop $name; done
  unmount_all
  network_down
  # Pods' cgroups are empty now; the innermost first.
  find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} + 2>/dev/null || true
  while read -r name; do
    case "$name" in /var/* | /run/*) rm -rf "$name" ;; esac
  done < <(cat "$BEFORE/folders" 2>/dev/null)
  rm -rf "$STATE"/{etcd,containerd,kubelet,kubelet-plugins,pod-logs,addresses,run,before} "$STATE"/*.sock*
  [ "${1:-}" != --all ] || rm -rf "$STATE"
  say "down after ${SECONDS}s"
}

end_containers() {
  local each turns
  if running containerd >/dev/null; then
    for each in $(ctr_ tasks ls -q); do ctr_ tasks kill -s KILL -a "$each" 2>/dev/null || true; done
    for ((turns = 50; turns > 0; turns--)); do
      ctr_ tasks ls | grep -q RUNNING || break
      sleep 0.1
    done
    for each in $(ctr_ tasks ls -q); do ctr_ tasks rm -f "$each" >/dev/null 2>&1 || true; done
    for each in $(ctr_ containers ls -q); do ctr_ containers rm "$each" >/dev/null 2>&1 || true; done
  fi
  stop containerd
  for each in $(shims); do kill -KILL "$each" 2>/dev/null || true; done
}

shims() { # process ids: a shim names our containerd's socket on its command line
  local process
  for process in /proc/[0-9]*; do
    { tr '\0' ' ' <"$process/cmdline" || true; } 2>/dev/null |
      grep -q "containerd-shim.* -address $CONTAINERD " && echo "${process#/proc/}"
  done
  true
}

unmount_all() { # volumes, root file systems, network namespaces: the innermost first
  local mounts mount turns
  for ((turns = 5; turns > 0; turns--)); do
    mounts="$(awk -v state="$STATE/" 'index($2, state) == 1 {print $2}' /proc/mounts | tac)"
    [ -n "$mounts" ] || return 0
    while read -r mount; do umount "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null || true; done <<<"$mounts"
  done
}
