# Whether this machine can hold the cluster, and the Debian packages that takes.
# shellcheck shell=bash

# Program : its Debian package.
PACKAGES="runc:runc iptables:iptables nft:nftables conntrack:conntrack ip:iproute2 openssl:openssl curl:curl python3:python3"

why_not() { # one line that says why there can be no cluster here; nothing if there can
  local missing
  if [ "$(uname -s)" != Linux ]; then
    echo "the local cluster requires Linux, not $(uname -s): use a Linux machine, or install Docker and kind"
  elif [ "$(id -u)" != 0 ]; then
    echo "the local cluster requires root, for network, mounts and cgroups: try sudo, or install Docker and kind"
  elif ((${#CONTAINERD} > 95)); then
    echo "the path $STATE is too long for its sockets: set SWE_ARGO_CLUSTER to a shorter path"
  elif ! grep -q ' /sys/fs/cgroup' /proc/mounts; then
    echo "no cgroups are mounted at /sys/fs/cgroup: use a machine or container with cgroups"
  elif [ ! -d /proc/sys/net/bridge ] && ! modprobe br_netfilter 2>/dev/null; then
    echo "the kernel module br_netfilter is not loaded, but network policies require it: load it"
  elif missing="$(missing_packages)" && [ -n "$missing" ] && ! command -v apt-get >/dev/null; then
    echo "apt-get is not available to install the Debian packages $missing: install their programs"
  elif ! all_built && ! why_not_build; then
    :
  elif other_kubelet; then
    echo "another kubelet is running on this machine (pgrep -x kubelet): stop it, or use its cluster"
  elif missing="$(taken)"; then
    echo "a route conflicts with the pods' addresses ($missing): delete it"
  fi
}

why_not_go() { # fail if it printed why programs cannot be built with the Go of this machine
  local go
  if ! go="$(go env GOVERSION 2>/dev/null)"; then
    echo "the cluster's programs cannot be built without Go: install Go $GO_NEEDED or newer"
  elif [ "$(printf '%s\n' "$GO_NEEDED" "${go#go}" | sort -V | head -n 1)" != "$GO_NEEDED" ]; then
    echo "the cluster's programs cannot be built with Go ${go#go}: install Go $GO_NEEDED or newer"
  else
    return 0
  fi
  return 1
}

why_not_build() { # the same, or why their modules cannot be downloaded
  why_not_go || return
  (cd / && timeout 60 go list -m "k8s.io/kubernetes@v$KUBERNETES" >/dev/null 2>&1) && return
  echo "the cluster's programs cannot be built, because their Go modules cannot be downloaded: check the network, or set GOPROXY"
  return 1
}

other_kubelet() { # pgrep -x kubelet, but for ours
  local ours process
  ours="$(running kubelet || true)"
  for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = kubelet ] && [ "${process#/proc/}" != "$ours" ] && return
  done
  return 1
}

taken() { # print a route to addresses of the pods that is not ours
  ip route show root "$POD_CIDR" 2>/dev/null | grep -v " dev $BRIDGE " | head -n 1 | grep .
}

missing_packages() {
  local each missing=()
  for each in $PACKAGES; do command -v "${each%%:*}" >/dev/null || missing+=("${each##*:}"); done
  [ -x "$CNI_BIN/bridge" ] || missing+=(containernetworking-plugins)
  echo "${missing[*]}"
}

install_packages() {
  local missing
  missing="$(missing_packages)"
  [ -n "$missing" ] || return 0
  say "installing $missing"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$LOGS/apt.log" 2>&1 ||
    die "apt-get could not install $missing: $(tail -n 1 "$LOGS/apt.log")"
}
