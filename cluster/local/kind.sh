# The same on kind, where it and a Docker engine are there. There is no S3 server then.
# shellcheck shell=bash

KIND=swe-argo # its name there
KIND_NEEDED=0.24 # since then its own network plugin enforces NetworkPolicy

is_kind() { # a cluster of ours that is up already stays what it is
  [ ! -d "$RUN" ] && command -v kind >/dev/null && docker info >/dev/null 2>&1
}

kind_why_not() { # one line that says why there can be no cluster here; nothing if there can
  local version
  version="$(kind version -q)"
  if [ "$(printf '%s\n' "$KIND_NEEDED" "$version" | sort -V | head -n 1)" != "$KIND_NEEDED" ]; then
    echo "kind $version does not enforce network policies: install kind $KIND_NEEDED or newer"
  elif ! command -v kubectl >/dev/null; then
    echo "kubectl is not installed: install it"
  fi
}

kind_up() {
  local reason
  reason="$(kind_why_not)"
  [ -z "$reason" ] || refuse "$reason"
  mkdir -p "$STATE"
  kind get clusters 2>/dev/null | grep -qx $KIND || kind create cluster --name $KIND --kubeconfig "$ADMIN" --wait 120s
  kind export kubeconfig --name $KIND --kubeconfig "$ADMIN"
  kc wait --for=condition=Ready node --all --timeout=300s >/dev/null || die "the node of kind is not Ready"
  kc label node --all role=cpu-sandbox --overwrite >/dev/null
}

kind_down() {
  kind delete cluster --name $KIND --kubeconfig "$ADMIN"
  rm -f "$ADMIN"
  [ "${1:-}" != --all ] || rm -rf "$STATE"
}

kind_status() {
  kc get nodes -o wide
  kc get pods --all-namespaces
  kc wait --for=condition=Ready node --all --timeout=1s >/dev/null
}

kind_build() { # [NAME...]: it brings all but helm
  [ $# -gt 0 ] || command -v helm >/dev/null || ! command -v go >/dev/null || set -- helm
  [ $# = 0 ] || build "$@"
}

kind_load() {
  local each
  for each; do
    if [ -f "$each" ]; then kind load image-archive --name $KIND "$each"; else kind load docker-image --name $KIND "$each"; fi
  done
}

kind_images() { # the names, without ids and digests
  docker exec $KIND-control-plane crictl images --output json | grep -oE '"[^"]+:[^":/]+"' | grep -v sha256: | tr -d '"' || true
}

kind_restart() { # only what is a service of the node
  docker exec $KIND-control-plane systemctl stop "$1"
  sleep "${2:-0}"
  docker exec $KIND-control-plane systemctl start "$1"
}
