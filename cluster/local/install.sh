# The project's chart, by helm.
# shellcheck shell=bash

install_chart() { # [NAMESPACE [HELM-OPTION...]]
  local namespace="${1:-swe-argo}" chart="$HERE/../../charts/swe-argo"
  [ $# = 0 ] || shift
  [ -s "$ADMIN" ] || refuse "no cluster in $STATE: run cluster up"
  [ -f "$chart/Chart.yaml" ] || refuse "$chart is missing"
  command -v helm >/dev/null || build helm
  helm upgrade --install swe-argo "$chart" --kubeconfig "$ADMIN" --namespace "$namespace" --create-namespace "$@"
}
