# Programs built from their published Go modules: no checkout, no download of
# releases. One that is there in its version is left alone, and Go's own cache
# makes a second build cheap.
# shellcheck shell=bash disable=SC2034

KUBERNETES=1.34.4 # modules v1.34.4 and v0.34.4
# Debian 12's containerd 1.6 stalls for half a minute when some 24 execs start
# together in a container; its etcd 3.4 lacks the progress requests that the
# lists of newer clients wait for.
CONTAINERD_VERSION=v2.4.2
ETCD_VERSION=v3.6.8
COREDNS_VERSION=v1.15.0
HELM_VERSION=v3.22.0
GO_NEEDED=1.26 # containerd's and CoreDNS' go.mod

KUBERNETES_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
# The modules that k8s.io/kubernetes asks for as v0.0.0, its own repository's.
STAGING="api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
  code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib
  dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy
  kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission"
SAMPLES="sample-cli-plugin sample-apiserver sample-controller"

build() { # [NAME...]: all that `up` needs, and helm where there is none, unless named
  local name
  if [ $# = 0 ]; then
    set -- kubernetes containerd etcd coredns pause netpol
    command -v helm >/dev/null || set -- "$@" helm
  fi
  mkdir -p "$BIN" "$LOGS" "$STATE/build/stamps"
  {
    flock 8 # one build at a time: each uses all cores
    for name; do
      case "$name" in
        kubernetes | pause | netpol) "build_$name" ;;
        containerd) build_containerd ;;
        etcd) build_module etcd "$ETCD_VERSION" go.etcd.io/etcd/server/v3 ;;
        coredns) build_module coredns "$COREDNS_VERSION" github.com/coredns/coredns ;;
        helm) build_helm ;;
        s3) build_s3 ;;
        *) refuse "unknown program: $name" ;;
      esac
    done
  } 8>"$STATE/build/lock"
}

built() { # NAME VERSION PROGRAM...: is it there?
  local program
  for program in "${@:3}"; do [ -x "$BIN/$program" ] || return; done
  [ "$(cat "$STATE/build/stamps/$1" 2>/dev/null)" = "$2" ]
}

all_built() { # whether `build` has nothing to fetch (its own sources are in this folder)
  built kubernetes "v$KUBERNETES" "${KUBERNETES_PROGRAMS[@]}" && built containerd "$CONTAINERD_VERSION" containerd ctr &&
    built etcd "$ETCD_VERSION" etcd && built coredns "$COREDNS_VERSION" coredns && built_pause && built_netpol
}

stamp() { # NAME VERSION
  echo "$2" >"$STATE/build/stamps/$1"
  say "built $1 $2 in $((SECONDS - began))s"
}

go_build() { # FOLDER OUTPUT LINKER-FLAGS PACKAGE...: no more compilers at a time than there are cores
  say "building ${*:4}"
  (cd "$1" && CGO_ENABLED=0 go build -v -p "$(nproc)" -buildvcs=false -trimpath -ldflags "-s -w $3" -o "$2" "${@:4}" 2>&1) | compiled >&2 ||
    die "the build of ${*:4} failed"
}

# How many packages are compiled, every PROGRESS_S seconds, in place of their names; whatever else is said, as it is.
PROGRESS_S=10
compiled() {
  local line count=0 due=$((SECONDS + PROGRESS_S))
  while true; do
    if IFS= read -r -t 1 line; then
      if [[ "$line" =~ ^[A-Za-z0-9._/~-]+$ ]]; then count=$((count + 1)); else echo "$line"; fi
    elif [ $? -le 128 ]; then # the end, not the second
      return
    fi
    if ((SECONDS >= due)); then
      echo "  $count packages compiled, $((SECONDS - began))s"
      due=$((SECONDS + PROGRESS_S))
    fi
  done
}

build_kubernetes() {
  local began=$SECONDS folder="$STATE/build/kubernetes" x=k8s.io/component-base/version
  built kubernetes "v$KUBERNETES" "${KUBERNETES_PROGRAMS[@]}" && return
  kubernetes_module "$folder"
  (cd "$folder" && go mod tidy >"$LOGS/build.log" 2>&1) || die "cannot download Go modules: $(tail -n 1 "$LOGS/build.log")"
  go_build "$folder" "$BIN/" "-X $x.gitVersion=v$KUBERNETES -X $x.gitMajor=1 -X $x.gitMinor=34 -X $x.gitTreeState=clean" \
    "${KUBERNETES_PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}"
  stamp kubernetes "v$KUBERNETES"
}

kubernetes_module() { # FOLDER: a module of ours that holds the versions together
  local name
  mkdir -p "$1"
  {
    printf 'module cluster/kubernetes\n\ngo 1.24.0\n'
    printf 'tool k8s.io/kubernetes/cmd/%s\n' "${KUBERNETES_PROGRAMS[@]}"
    printf 'require k8s.io/kubernetes v%s\n' "$KUBERNETES"
    for name in $STAGING; do
      printf 'require k8s.io/%s v0.%s\n' "$name" "${KUBERNETES#1.}"
      printf 'replace k8s.io/%s => k8s.io/%s v0.%s\n' "$name" "$name" "${KUBERNETES#1.}"
    done
    # Named, not all of them published, and imported by nothing: empty ones will do.
    for name in $SAMPLES; do printf 'replace k8s.io/%s => ./empty/%s\n' "$name" "$name"; done
  } >"$1/go.mod"
  for name in $SAMPLES; do
    mkdir -p "$1/empty/$name"
    printf 'module k8s.io/%s\n\ngo 1.24.0\n' "$name" >"$1/empty/$name/go.mod"
  done
}

get() { # FOLDER VERSION PACKAGE...: a module of ours with these as its tools
  # (`go install package@version` refuses modules that replace others)
  local packages=("${@:3}")
  rm -rf "$1"
  mkdir -p "$1"
  (cd "$1" && go mod init "cluster/${1##*/}" && go get -tool "${packages[@]/%/@$2}") >"$LOGS/build.log" 2>&1 ||
    die "cannot download Go modules: $(tail -n 1 "$LOGS/build.log")"
}

build_module() { # NAME VERSION PACKAGE [LINKER-FLAGS]
  local began=$SECONDS
  built "$1" "$2" "$1" && return
  get "$STATE/build/$1" "$2" "$3"
  go_build "$STATE/build/$1" "$BIN/$1" "${4:-}" "$3"
  stamp "$1" "$2"
}

# Built by hand, helm takes every cluster that it does not ask (`helm template`) for Kubernetes 1.20.
build_helm() {
  local x=helm.sh/helm/v3/pkg/chartutil minor="${KUBERNETES#1.}"
  build_module helm "$HELM_VERSION" helm.sh/helm/v3/cmd/helm "-X $x.k8sVersionMajor=1 -X $x.k8sVersionMinor=${minor%.*}"
}

build_containerd() {
  local began=$SECONDS x=github.com/containerd/containerd/v2
  local packages=("$x/cmd/containerd" "$x/cmd/containerd-shim-runc-v2" "$x/cmd/ctr")
  built containerd "$CONTAINERD_VERSION" containerd containerd-shim-runc-v2 ctr && return
  get "$STATE/build/containerd" "$CONTAINERD_VERSION" "${packages[@]}"
  go_build "$STATE/build/containerd" "$BIN/" "-X $x/version.Version=${CONTAINERD_VERSION#v} -X $x/version.Revision=" "${packages[@]}"
  stamp containerd "$CONTAINERD_VERSION"
}

# The sources in this folder: their version is a digest.
version_of() { cat "$@" 2>/dev/null | sha256sum | cut -c1-12; }
pause_version() { version_of "$HERE/src/pause/main.go"; }
netpol_version() { version_of "$HERE"/src/netpol/*.go "$STATE/build/kubernetes/go.mod"; }
built_pause() { built pause "$(pause_version)" pause; }
built_netpol() { built netpol "$(netpol_version)" netpol; }

# moto, in the versions of the project's lock, where the project's own .venv is not there.
build_s3() {
  local began=$SECONDS folder="$STATE/s3" lock="$HERE/../../requirements.lock" version
  version="$(version_of "$lock")"
  [ -x "$folder/bin/moto_server" ] && [ "$(cat "$STATE/build/stamps/s3" 2>/dev/null)" = "$version" ] && return
  say "building moto, the S3 server"
  rm -rf "$folder"
  # (a constraint is a line of the lock without its hashes)
  { python3 -m venv "$folder" && sed -n 's/^\([a-z].*==.*\) \\$/\1/p' "$lock" >"$folder/versions" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -c "$folder/versions" 'moto[s3,server]'; } >"$LOGS/build.log" 2>&1 ||
    die "moto cannot be installed: $(tail -n 1 "$LOGS/build.log")"
  stamp s3 "$version"
}

build_pause() {
  local began=$SECONDS
  built_pause && return
  go_build "$HERE/src/pause" "$BIN/pause" "" main.go
  stamp pause "$(pause_version)"
}

build_netpol() { # with Kubernetes' modules, most of which are compiled by now
  local began=$SECONDS folder="$STATE/build/kubernetes"
  built_netpol && return
  mkdir -p "$folder/netpol"
  cp "$HERE"/src/netpol/*.go "$folder/netpol/"
  go_build "$folder" "$BIN/netpol" "" ./netpol
  stamp netpol "$(netpol_version)"
}
