# The pods' bridge, its firewall, and both undone.
# shellcheck shell=bash

sysctl_set() { # KEY VALUE: the old value is kept for `down`
  local file="/proc/sys/${1//.//}"
  [ -e "$file" ] || return 0
  grep -qs "^$1=" "$BEFORE/sysctl" || echo "$1=$(<"$file")" >>"$BEFORE/sysctl"
  echo "$2" >"$file"
}

rule() { # TABLE CHAIN RULE...: append, once
  local table=$1
  shift
  iptables -w -t "$table" -C "$@" 2>/dev/null || iptables -w -t "$table" -A "$@"
}

network_up() {
  [ -e "$BEFORE/tables" ] || nft list tables >"$BEFORE/tables"
  ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge
  # Pods have IPv4 only: no policy here knows of another way.
  echo 1 >"/proc/sys/net/ipv6/conf/$BRIDGE/disable_ipv6" 2>/dev/null || true
  ip address replace "$GATEWAY/${POD_CIDR#*/}" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  # This machine, too, sends what is for a Service from the gateway's address.
  ip route replace "$SERVICE_CIDR" dev "$BRIDGE" src "$GATEWAY"
  sysctl_set net.ipv4.ip_forward 1
  # What goes from pod to pod is bridged, and passes the rules all the same.
  sysctl_set net.bridge.bridge-nf-call-iptables 1
  sysctl_set net.bridge.bridge-nf-call-ip6tables 1
  # The kubelet sets these by itself; named here so that `down` puts them back.
  sysctl_set vm.overcommit_memory 1
  sysctl_set kernel.panic 10
  sysctl_set kernel.panic_on_oops 1
  firewall_up
}

# As on any cluster, a pod reaches other pods and the world behind this machine,
# and NetworkPolicies say which may not. ACCEPT and not RETURN: where Docker runs,
# whatever no rule accepts is dropped. Of this machine itself pods see HOST_PORTS.
firewall_up() {
  local chain
  for chain in FORWARD INPUT; do iptables -w -N "KC-$chain" 2>/dev/null || true; done
  rule filter KC-FORWARD -i "$BRIDGE" -j ACCEPT
  rule filter KC-FORWARD -o "$BRIDGE" -j ACCEPT
  rule filter KC-INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
  rule filter KC-INPUT -p icmp -j ACCEPT
  rule filter KC-INPUT -d "$GATEWAY" -p tcp -m multiport --dports "$HOST_PORTS" -j ACCEPT
  rule filter KC-INPUT -j REJECT
  iptables -w -C FORWARD -j KC-FORWARD 2>/dev/null || iptables -w -I FORWARD -j KC-FORWARD
  iptables -w -C INPUT -i "$BRIDGE" -j KC-INPUT 2>/dev/null || iptables -w -I INPUT -i "$BRIDGE" -j KC-INPUT
  rule nat POSTROUTING -s "$POD_CIDR" ! -o "$BRIDGE" -m comment --comment KC-MASQUERADE -j MASQUERADE
}

network_down() {
  nft delete table inet netpol 2>/dev/null || true
  delete_chains iptables ip
  delete_chains ip6tables ip6
  ip link delete "$BRIDGE" 2>/dev/null || true # its routes go with it
  local key value
  while IFS='=' read -r key value; do
    echo "$value" >"/proc/sys/${key//.//}" || true
  done < <(cat "$BEFORE/sysctl" 2>/dev/null)
}

# Ours, kube-proxy's, the kubelet's and the CNI plugins': the jumps to them, then
# they; then the tables that were not there before and hold nothing any more.
delete_chains() { # COMMAND FAMILY
  local table line chain chains
  for table in nat filter mangle; do
    while read -r line; do xargs "$1" -w -t "$table" <<<"$line"; done < <(
      "$1" -w -t "$table" -S 2>/dev/null | sed -nE 's/^-A (.*(-j (KC|CNI|KUBE)-|KC-MASQUERADE).*)/-D \1/p')
    chains="$("$1" -w -t "$table" -S 2>/dev/null | sed -nE 's/^-N ((KC|CNI|KUBE)-.*)/\1/p')"
    for chain in $chains; do "$1" -w -t "$table" -F "$chain"; done
    for chain in $chains; do "$1" -w -t "$table" -X "$chain"; done
    [ ! -e "$BEFORE/tables" ] || grep -qx "table $2 $table" "$BEFORE/tables" ||
      { "$1" -w -t "$table" -S 2>/dev/null || true; } | grep -q '^-[AN]' || nft delete table "$2" "$table" 2>/dev/null || true
  done
}
