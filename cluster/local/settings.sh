# Where the cluster keeps what it has, and its addresses.
# shellcheck shell=bash disable=SC2034

STATE="${SWE_ARGO_CLUSTER:-${XDG_STATE_HOME:-${HOME:-/root}/.local/state}/swe-argo-cluster}"
BIN="$STATE/bin"       # programs
ETC="$STATE/etc"       # their configuration
PKI="$STATE/pki"       # certificates
LOGS="$STATE/log"
RUN="$STATE/run"       # what runs: a file for each, process id and start time
BEFORE="$STATE/before" # how the machine was, for `down`
IMAGES="$STATE/images" # archives of the images that were loaded
ADMIN="$STATE/admin.conf"
# Argo Workflows' programs and manifests, as `build-argo` writes them.
ARGO_HOME="${ARGO_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/swe-argo/argo}"
PATH="$BIN:$PATH"

NODE=node0
BRIDGE=kc0
# The bridge's address is the node's, the API server's and the pods' gateway:
# one that pods, this machine and the certificates agree on.
GATEWAY=10.244.0.1
POD_CIDR=10.244.0.0/22
MAX_PODS=250
SERVICE_CIDR=10.96.0.0/16
API_SERVICE=10.96.0.1
DNS_SERVICE=10.96.0.10
API_PORT=6443
ETCD_PORT=12379
S3_PORT=9000
BUCKET=runs
# What pods may reach of this machine itself; the rest of it is closed to them.
HOST_PORTS="$API_PORT,$S3_PORT:9099"

CNI_BIN=/usr/lib/cni # where Debian's containernetworking-plugins puts them
CONTAINERD="$STATE/containerd.sock"
NETPOL="$STATE/netpol.sock"

WRONG=64 # exit code: nothing was done, and trying again will not help

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
refuse() { say "error: $*"; exit "$WRONG"; }

kc() { kubectl --kubeconfig "$ADMIN" "$@"; }

# ctr says at every call that cgroup v1 will go some day.
ctr_() { ctr --address "$CONTAINERD" --namespace k8s.io "$@" 2> >(grep -v 'DEPRECATION: The support for cgroup v1' >&2); }
