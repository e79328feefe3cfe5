# Everything started that does not run yet; what runs is left alone.
# shellcheck shell=bash

up() {
  SECONDS=0
  local reason name
  reason="$(why_not)"
  [ -z "$reason" ] || refuse "$reason"
  mkdir -p "$STATE" "$BIN" "$ETC" "$LOGS" "$RUN" "$BEFORE" "$IMAGES"
  chmod 700 "$STATE"
  exec 9>"$STATE/lock"
  flock 9
  build
  install_packages
  remember_folders
  network_up
  write_pki
  write_node_config
  for name in etcd kube-apiserver containerd; do launch $name; done
  kc apply -f "$HERE/manifests/node.yaml" >/dev/null
  load_own_images
  for name in netpol kube-controller-manager kube-scheduler kubelet kube-proxy; do launch $name; done
  wait_for 300 "the node to be Ready" node_ready
  say "node Ready after ${SECONDS}s"
  # What the chart asks of a node for sandboxes, unless told otherwise.
  kc label node "$NODE" role=cpu-sandbox --overwrite >/dev/null
  launch s3
  dns_up
  load_kept_images
  argo_up
  say "up after ${SECONDS}s; to use it: eval \"\$($0 env)\""
}

node_ready() { [ "$(kc get node "$NODE" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }

dns_up() {
  local forward=""
  ! grep -q ^nameserver "$ETC/resolv.conf" || forward="forward . /etc/resolv.conf"
  sed "s|ADDRESS|$DNS_SERVICE|; s|^\( *\)FORWARD\$|\1$forward|" "$HERE/manifests/dns.yaml" | kc apply -f - >/dev/null
  wait_for 300 DNS kc -n kube-system rollout status deployment/coredns --timeout=1s
}

# Folders that these programs make outside of ours, and that `down` removes then.
remember_folders() {
  local folder
  for folder in /var/lib/kubelet /var/log/containers /var/lib/cni /run/containerd; do
    [ -e "$folder" ] || grep -qsx "$folder" "$BEFORE/folders" || echo "$folder" >>"$BEFORE/folders"
  done
}

restart() { # NAME [SECONDS]: stop it, leave it stopped so long, start it
  local parts
  parts="$COMPONENTS $(argo_parts | xargs)"
  case " $parts " in *" ${1:-} "*) ;; *) refuse "restart one of: $parts" ;; esac
  [ -d "$RUN" ] || refuse "the cluster is not up"
  stop "$1"
  sleep "${2:-0}"
  launch "$1"
}
