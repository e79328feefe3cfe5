# The pipeline's chart on this cluster, as `deploy` and `deploy-training` install it.
# shellcheck shell=bash disable=SC2154

want_images() {
  want S3_BUCKET my-swe-argo-runs
  want IMAGE_REGISTRY "111122223333.dkr.ecr.$AWS_REGION.amazonaws.com/swe-argo"
}

install_pipeline() { # install_pipeline HELM-OPTION...
  local prefixes=()
  [ -z "$SANDBOX_REGISTRY" ] || prefixes=(--set "sandbox.imagePrefixes={$SANDBOX_REGISTRY/,$IMAGE_REGISTRY/}")
  helm_ upgrade --install swe-argo "$ROOT/charts/swe-argo" --namespace "$NAMESPACE" --create-namespace \
    --values "$EKS/chart-values.yaml" "$@" --set "aws.region=$AWS_REGION" --set "aws.s3.bucket=$S3_BUCKET" \
    --set "aws.s3.prefix=${S3_PREFIX%/}" --set "image.repository=$IMAGE_REGISTRY/swe-argo-steps" \
    --set-string "image.tag=$IMAGE_TAG" ${VIEW:+--set view.enabled=true} ${prefixes[@]+"${prefixes[@]}"} --wait
}
