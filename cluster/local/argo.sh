# Argo Workflows, from the programs and manifests in the folder ARGO_HOME, which `build-argo` makes from a checkout.
# The cluster copies what it needs, so `up` after `down` has it too.
# shellcheck shell=bash

ARGO="$STATE/argo" # what was copied, but for the programs of this machine, which are in BIN
ARGO_NAMESPACE=argo
ARGO_PROGRAMS=(workflow-controller argoexec argo)
ARGO_MODULE=github.com/argoproj/argo-workflows/v4
ARGO_PORT=9046 # among HOST_PORTS: pods reach argo-server, and this machine does

# Those of the cluster's parts that are Argo's.
argo_parts() {
  [ ! -d "$ARGO" ] || echo workflow-controller
  [ ! -d "$ARGO" ] || [ ! -x "$BIN/argo" ] || echo argo-server
}

build_argo() { # SOURCE: fill ARGO_HOME from a checkout of argo-workflows, which stays as it is
  local began=$SECONDS source="${1:-}" reason version=v0.0.0 folder flags
  [ -n "$source" ] || refuse "SOURCE is not set: make argo-binaries SOURCE=<checkout of argo-workflows>"
  grep -qsx "module $ARGO_MODULE" "$source/go.mod" ||
    refuse "SOURCE=$source is not a checkout of argo-workflows 4: its go.mod does not name $ARGO_MODULE"
  reason="$(why_not_go)" || refuse "$reason"
  source="$(cd "$source" && pwd)"
  [ ! -e "$source/.git" ] || version="$(git -C "$source" describe --tags --always)"
  folder="$(mktemp -d)"
  # The tag makes the API types protobuf messages for the libraries of Kubernetes 1.35.
  flags="-tags=kubernetes_protomessage_one_more_release"
  if [ ! -d "$source/ui/dist/app" ]; then # `argo` embeds the UI: a placeholder where nobody built it
    touch "$folder/index.html"
    printf '{"Replace": {"%s": "%s"}}' "$source/ui/dist/app/index.html" "$folder/index.html" >"$folder/overlay.json"
    flags+=" -overlay=$folder/overlay.json"
  fi
  mkdir -p "$STATE/build" "$ARGO_HOME/manifests/base"
  {
    flock 8
    GOFLAGS="$flags" go_build "$source" "$ARGO_HOME/" "-X $ARGO_MODULE.version=$version" "${ARGO_PROGRAMS[@]/#/./cmd/}"
  } 8>"$STATE/build/lock"
  cp -r "$source/manifests/base/crds" "$ARGO_HOME/manifests/base/"
  rm -r "$folder"
  say "built Argo Workflows $version in $ARGO_HOME in $((SECONDS - began))s"
}

install_argo() {
  local each
  for each in workflow-controller argoexec manifests/base/crds/full/argoproj.io_workflows.yaml; do
    [ -e "$ARGO_HOME/$each" ] ||
      refuse "ARGO_HOME=$ARGO_HOME lacks $each: make argo-binaries SOURCE=<checkout of argo-workflows>"
  done
  running kube-apiserver >/dev/null || refuse "no local cluster in $STATE: run cluster up"
  SECONDS=0
  exec 9>"$STATE/lock"
  flock 9
  mkdir -p "$ARGO/crds"
  for each in workflow-controller argo; do
    [ ! -e "$ARGO_HOME/$each" ] || renew "$ARGO_HOME/$each" "$BIN/$each"
  done
  renew "$ARGO_HOME/argoexec" "$ARGO/argoexec"
  # (not its kustomization.yaml, which is not for the API server)
  cp "$ARGO_HOME"/manifests/base/crds/full/argoproj.io_*.yaml "$ARGO/crds/"
  argo_up
  say "Argo is up after ${SECONDS}s"
}

renew() { # FROM TO: a daemon of that program that runs is ended, and `launch` starts the new one
  ! cmp -s "$1" "$2" || return 0
  stop "$(basename "$2" | sed 's/^argo$/argo-server/')"
  install -m 755 "$1" "$2"
}

argo_up() {
  local digest name
  [ -d "$ARGO" ] || return 0
  # Some megabytes of schemas: only where they are not the ones that are there.
  digest="$(cat "$ARGO"/crds/* | sha256sum | cut -c1-16)"
  if [ "$(kc get namespace $ARGO_NAMESPACE -o 'jsonpath={.metadata.labels.crds}' 2>/dev/null)" != "$digest" ]; then
    # Their schemas are too large for the annotation that an apply by the client makes.
    kc apply --server-side --force-conflicts -f "$ARGO/crds" >/dev/null
    kc wait --for=condition=Established --timeout=300s -f "$ARGO/crds" >/dev/null
  fi
  write_argo_accounts
  kc apply -f "$HERE/manifests/argo.yaml" >/dev/null
  kc label namespace $ARGO_NAMESPACE "crds=$digest" --overwrite >/dev/null
  load_argoexec
  for name in $(argo_parts); do launch "$name"; done
}

write_argo_accounts() { # they may do what Argo's own manifests give them, so nothing works here by chance
  local user
  for user in workflow-controller argo-server; do
    certificate ca $user /CN=$user
    kubeconfig "$ETC/$user.conf" $user
  done
}

argoexec_image() { echo "localhost/argoexec:$(sha256sum "$ARGO/argoexec" | cut -c1-12)"; }

load_argoexec() {
  local name known
  name="$(argoexec_image)"
  known="$(images)"
  ! grep -qx "$name" <<<"$known" || return 0
  python3 "$HERE/mkimage.py" "$name" "$STATE/argoexec.tar" --add "$ARGO/argoexec:/bin/argoexec" --cmd argoexec
  rm -f "$IMAGES"/localhost_argoexec:*.tar # of another version
  load "$STATE/argoexec.tar" >/dev/null
  rm -f "$STATE/argoexec.tar"
}

# What happens to a workflow's pods is acted upon so much later: 10 s by default,
# which merges changes of busy workflows. One second is the least that Argo takes
# for safe; with a node of its own and some dozens of pods nothing needs merging,
# and every step would wait for it twice. It leads without an election: it is alone.
launch_workflow_controller() {
  start workflow-controller env LEADER_ELECTION_DISABLE=true DEFAULT_REQUEUE_TIME=1s \
    workflow-controller --kubeconfig "$ETC/workflow-controller.conf" --namespace "$ARGO_NAMESPACE" \
    --executor-image "$(argoexec_image)" --executor-image-pull-policy IfNotPresent \
    --qps 60 --burst 120 --pod-cleanup-workers 32 --loglevel warn
  wait_for 300 "the workflow controller" curl -fs "http://$GATEWAY:6060/healthz"
}

launch_argo_server() { # who comes shows a token (argo auth token, kubectl create token) and may do what that may
  start argo-server env KUBECONFIG="$ETC/argo-server.conf" \
    argo server --namespace "$ARGO_NAMESPACE" --auth-mode client --secure=false --port "$ARGO_PORT" --loglevel warn
  wait_for 300 argo-server curl -fs "http://$GATEWAY:$ARGO_PORT/"
}
