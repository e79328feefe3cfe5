# The same on kind, where it and a Docker engine are there. kind's own network
# plugin enforces NetworkPolicy (since 0.24). There is no S3 server then.
# shellcheck shell=bash

KIND=swe-argo # its name there

is_kind() { # a cluster of ours that is up already stays what it is
  [ ! -d "$RUN" ] && command -v kind >/dev/null && docker info >/dev/null 2>&1
}

kind_up() {
  mkdir -p "$STATE"
  kind get clusters 2>/dev/null | grep -qx $KIND || kind create cluster --name $KIND --kubeconfig "$ADMIN" --wait 120s
  kind export kubeconfig --name $KIND --kubeconfig "$ADMIN"
  kc label node --all role=cpu-sandbox --overwrite
}

kind_down() {
  kind delete cluster --name $KIND --kubeconfig "$ADMIN"
  rm -f "$ADMIN"
  [ "${1:-}" != --all ] || rm -rf "$STATE"
}

kind_status() {
  kc get nodes -o wide
  kc get pods --all-namespaces
}

kind_load() {
  local each
  for each; do
    if [ -f "$each" ]; then kind load image-archive --name $KIND "$each"; else kind load docker-image --name $KIND "$each"; fi
  done
}

kind_images() { docker exec $KIND-control-plane crictl images --output json | grep -oE '"[^"]+:[^":/]+"' | tr -d '"'; }

kind_restart() { # only what is a service of the node
  docker exec $KIND-control-plane systemctl stop "$1"
  sleep "${2:-0}"
  docker exec $KIND-control-plane systemctl start "$1"
}

kind_why_not() { :; }
