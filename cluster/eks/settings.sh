# What the scripts of this folder share: their variables, refusals, and commands that a dry run prints.
# shellcheck shell=bash disable=SC2034

SELF="cluster/eks/$(basename "$0")"
EKS="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$EKS/../.." && pwd)"
WRONG=64

# Read from the environment:
CLUSTER="${CLUSTER:-swe-argo}"          # name of the cluster
AWS_REGION="${AWS_REGION:-us-east-1}"   # and its region
NAMESPACE="${NAMESPACE:-swe-argo}"      # namespace of the pipeline
S3_BUCKET="${S3_BUCKET:-}"              # bucket that keeps the runs; it must be there, in that region
S3_PREFIX="${S3_PREFIX:-}"              # folder of it
IMAGE_REGISTRY="${IMAGE_REGISTRY:-}"    # where `make push` pushed: ACCOUNT.dkr.ecr.REGION.amazonaws.com/swe-argo
IMAGE_TAG="${IMAGE_TAG:-}"              # tag of the steps' image (default: the project's version)
SANDBOX_REGISTRY="${SANDBOX_REGISTRY:-}" # what the benchmark's images are pulled through; Docker Hub itself if empty
AUTOSCALER="${AUTOSCALER:-cluster-autoscaler}" # or karpenter
VIEW="${VIEW:-}"                        # 1: the viewer of runs, and a link to it in the Argo UI
VIEW_URL="${VIEW_URL:-http://localhost:7676}" # where people open it: the address of an ingress, or of a port-forward
API_CIDR="${API_CIDR:-0.0.0.0/0}"       # who reaches the API server from outside
PARTITION="${PARTITION:-aws}"           # aws-cn, aws-us-gov
PULL_THROUGH_PREFIX="${PULL_THROUGH_PREFIX:-docker-hub}" # folder of ECR's cache of Docker Hub
KUBE_CONTEXT="${KUBE_CONTEXT:-}"        # context to use, whatever it is called (default: the current one, if it is CLUSTER's)
PYTHON="${PYTHON:-python3}"
SWE_ARGO="${SWE_ARGO:-swe-argo}"        # the command
DRY_RUN="${DRY_RUN:-}"                  # print what would be done, and do nothing (as -n does)

# What is installed. Tests hold these and the values files together.
ARGO_VERSION=v4.1.2
ARGO_CHART=1.0.18
AUTOSCALER_CHART=9.59.0
KARPENTER=1.14.1

S3_PREFIX="${S3_PREFIX#/}"
S3_PREFIX="${S3_PREFIX:+${S3_PREFIX%/}/}"
IMAGE_REGISTRY="${IMAGE_REGISTRY%/}"
IMAGE_TAG="${IMAGE_TAG:-$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q;}' "$ROOT/pyproject.toml")}"
SANDBOX_REGISTRY="${SANDBOX_REGISTRY%/}"
export CLUSTER AWS_REGION NAMESPACE S3_BUCKET S3_PREFIX API_CIDR PARTITION PULL_THROUGH_PREFIX

die() {
  echo "$SELF: $*" >&2
  exit "$WRONG"
}

usage() {
  sed -n '2,/^set/{/^#/!d; s/^# \{0,1\}//p}' "$0" >&2
  exit "$WRONG"
}

# Takes -n off the arguments; what is left is in WORDS.
arguments() {
  WORDS=()
  local each
  for each; do
    case "$each" in
      -n | --dry-run) DRY_RUN=1 ;;
      -*) usage ;;
      *) WORDS+=("$each") ;;
    esac
  done
}

want() { # want NAME EXAMPLE
  [ -n "${!1}" ] || die "$1 is not set, e.g. $1=$2"
}

# A dry run says what would be done where it cannot be done as well.
need() { # need PROGRAM...
  local each
  [ -z "$DRY_RUN" ] || return 0
  for each; do
    command -v "$each" >/dev/null || die "$each is not installed"
  done
}

# Runs a command, or prints it as a shell would read it.
run() {
  if [ -n "$DRY_RUN" ]; then
    show "$@"
  else
    "$@"
  fi
}

show() {
  local each line=""
  for each; do
    each="${each/#$ROOT\//}"
    [[ "$each" =~ ^[A-Za-z0-9@%+=:,./_-]+$ ]] || each="'${each//\'/\'\\\'\'}'"
    line+="${line:+ }$each"
  done
  echo "$line"
}

# A file with its variables filled in, given to a command's standard input.
run_filled() { # run_filled FILE COMMAND...
  local file="$EKS/$1" text
  shift
  # Filled in on a dry run too: a variable that is missing or wrong is refused then.
  text="$("$PYTHON" "$EKS/fill.py" "$file")" || exit "$WRONG"
  if [ -n "$DRY_RUN" ]; then
    echo "$PYTHON cluster/eks/fill.py ${file/#$ROOT\//} | $(show "$@")"
  else
    "$@" <<<"$text"
  fi
}

kube_filled() { # kube_filled FILE WORD...
  local file="$1"
  shift
  run_filled "$file" kubectl ${KUBE_CONTEXT:+--context "$KUBE_CONTEXT"} "$@"
}

has_association() { # has_association NAMESPACE ACCOUNT
  eksctl get podidentityassociation --cluster "$CLUSTER" --region "$AWS_REGION" --namespace "$1" \
    --service-account-name "$2" --output json 2>/dev/null | grep -q "$2"
}

# Whatever changes a cluster changes this one.
in_cluster() {
  local context
  [ -z "$DRY_RUN" ] || return 0
  context="${KUBE_CONTEXT:-$(kubectl config current-context 2>/dev/null || true)}"
  case "$context" in
    "") die "no kube context is set: run eksctl utils write-kubeconfig --cluster $CLUSTER --region $AWS_REGION" ;;
    "$KUBE_CONTEXT" | *"@$CLUSTER.$AWS_REGION.eksctl.io" | *":$AWS_REGION:"*":cluster/$CLUSTER") ;;
    *) die "the kube context $context does not belong to cluster $CLUSTER in $AWS_REGION: change CLUSTER and AWS_REGION, or set KUBE_CONTEXT=$context to use it" ;;
  esac
}

kube() { run kubectl ${KUBE_CONTEXT:+--context "$KUBE_CONTEXT"} "$@"; }
helm_() { run helm ${KUBE_CONTEXT:+--kube-context "$KUBE_CONTEXT"} "$@"; }

ensure_namespace() { # helm would make it too, but not before the first chart
  if [ -n "$DRY_RUN" ] || ! kube get namespace "$1" >/dev/null 2>&1; then
    kube create namespace "$1"
  fi
}
