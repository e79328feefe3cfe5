# Whether this machine can hold the cluster, and the Debian packages that takes.
# shellcheck shell=bash

# Program : its Debian package.
PACKAGES="runc:runc iptables:iptables nft:nftables conntrack:conntrack ip:iproute2 openssl:openssl curl:curl python3:python3"

why_not() { # one line that says why there can be no cluster here; nothing if there can
  local missing
  if [ "$(uname -s)" != Linux ]; then
    echo "it needs Linux, this is $(uname -s): use a Linux machine, or install Docker and kind"
  elif [ "$(id -u)" != 0 ]; then
    echo "it needs root, for network, mounts and cgroups: try sudo, or install Docker and kind"
  elif ((${#CONTAINERD} > 95)); then
    echo "the path $STATE is too long for the sockets in it: set SWE_ARGO_CLUSTER to a shorter one"
  elif ! grep -q ' /sys/fs/cgroup' /proc/mounts; then
    echo "no cgroups are mounted at /sys/fs/cgroup: use a machine, or a container, that has them"
  elif [ ! -d /proc/sys/net/bridge ] && ! modprobe br_netfilter 2>/dev/null; then
    echo "the kernel's module br_netfilter is not there, without which policies do not hold: load it"
  elif missing="$(missing_packages)" && [ -n "$missing" ] && ! command -v apt-get >/dev/null; then
    echo "apt-get is not there to install what Debian packages as $missing: install these"
  elif ! all_built && ! why_not_build; then
    :
  elif other_kubelet; then
    echo "another kubelet runs here already (pgrep -x kubelet): stop it, or use its cluster"
  elif missing="$(taken)"; then
    echo "a route is in the way of the pods' addresses ($missing): delete it"
  fi
}

why_not_build() { # fail if it printed why the programs cannot be built
  local go
  if ! go="$(go env GOVERSION 2>/dev/null)"; then
    echo "its programs are to be built, and Go is not installed: install Go $GO_NEEDED or newer"
  elif [ "$(printf '%s\n' "$GO_NEEDED" "${go#go}" | sort -V | head -n 1)" != "$GO_NEEDED" ]; then
    echo "its programs are to be built with Go $GO_NEEDED or newer, and this is ${go#go}: install a newer one"
  elif ! (cd / && timeout 60 go list -m "k8s.io/kubernetes@v$KUBERNETES" >/dev/null 2>&1); then
    echo "its programs are to be built, and their Go modules cannot be fetched: it needs a network, or a GOPROXY that answers"
  else
    return 0
  fi
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
