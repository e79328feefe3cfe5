# How each process of the cluster is started, in the order in which they are.
# shellcheck shell=bash disable=SC2034

COMPONENTS="etcd kube-apiserver containerd netpol kube-controller-manager kube-scheduler kubelet kube-proxy s3"

launch() { # NAME: start it, unless it runs, and wait until it answers
  "launch_${1//-/_}"
}

launch_etcd() { # for speed without fsync: what a crash loses, `down` would delete anyway
  local peer="http://127.0.0.1:$((ETCD_PORT + 1))" client="http://127.0.0.1:$ETCD_PORT"
  start etcd etcd --name "$NODE" --data-dir "$STATE/etcd" --unsafe-no-fsync \
    --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "$NODE=$peer" \
    --auto-compaction-retention 1h --quota-backend-bytes 8589934592 --logger zap --log-level warn
  wait_for 300 etcd curl -fs "$client/health"
}

launch_kube_apiserver() {
  start kube-apiserver kube-apiserver \
    --etcd-servers "http://127.0.0.1:$ETCD_PORT" \
    --bind-address "$GATEWAY" --advertise-address "$GATEWAY" --secure-port "$API_PORT" \
    --service-cluster-ip-range "$SERVICE_CIDR" \
    --client-ca-file "$PKI/ca.crt" --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" \
    --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-preferred-address-types InternalIP \
    --kubelet-client-certificate "$PKI/apiserver-kubelet.crt" --kubelet-client-key "$PKI/apiserver-kubelet.key" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$PKI/accounts.pub" --service-account-signing-key-file "$PKI/accounts.key" \
    --requestheader-client-ca-file "$PKI/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$PKI/front-proxy.crt" --proxy-client-key-file "$PKI/front-proxy.key" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --feature-gates ImageVolume=true
  wait_for 300 "the API server" kc get --raw /readyz
}

launch_kube_controller_manager() {
  controller kube-controller-manager --use-service-account-credentials \
    --root-ca-file "$PKI/ca.crt" --service-account-private-key-file "$PKI/accounts.key" \
    --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key"
}

launch_kube_scheduler() { controller kube-scheduler; }

controller() { # NAME OPTION...
  local config="$ETC/$1.conf"
  start "$1" "$1" --kubeconfig "$config" --authentication-kubeconfig "$config" --authorization-kubeconfig "$config" \
    --bind-address 127.0.0.1 --leader-elect=false --kube-api-qps 100 --kube-api-burst 200 "${@:2}"
}

launch_containerd() {
  start containerd containerd --config "$ETC/containerd.toml"
  wait_for 300 containerd ctr_ version
}

launch_kubelet() {
  start kubelet kubelet --config "$ETC/kubelet.yaml" --kubeconfig "$ETC/kubelet.conf" \
    --root-dir "$STATE/kubelet" --cert-dir "$PKI" --hostname-override "$NODE" --node-ip "$GATEWAY"
  wait_for 300 "the kubelet" kc get --raw "/api/v1/nodes/$NODE/proxy/healthz"
}

launch_kube_proxy() { start kube-proxy kube-proxy --config "$ETC/kube-proxy.yaml"; }

launch_netpol() {
  start netpol netpol --kubeconfig "$ETC/netpol.conf" --bridge "$BRIDGE" --pods "$POD_CIDR" --socket "$NETPOL"
  wait_for 300 netpol curl -fs --unix-socket "$NETPOL" http://netpol/ready
}

launch_s3() { # in memory: what is in it ends with it
  local server="$HERE/../../.venv/bin/moto_server" signed=(--aws-sigv4 aws:amz:us-east-1:s3 --user any:key)
  if [ ! -x "$server" ]; then
    build_s3
    server="$STATE/s3/bin/moto_server"
  fi
  start s3 "$server" -H "$GATEWAY" -p "$S3_PORT"
  wait_for 300 S3 curl -fs "http://$GATEWAY:$S3_PORT/moto-api/"
  # (made already, it stays as it is)
  curl -fs -o /dev/null -X PUT "${signed[@]}" "http://$GATEWAY:$S3_PORT/$BUCKET" || die "the S3 server cannot create the bucket $BUCKET"
}
