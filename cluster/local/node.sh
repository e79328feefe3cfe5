# Configuration of the container runtime, the kubelet and kube-proxy.
# shellcheck shell=bash

write() { # FILE: what is read, unless the file says so already (kube-proxy ends when its own is written)
  local text
  text="$(cat)"
  [ "$(cat "$1" 2>/dev/null)" = "$text" ] || printf '%s\n' "$text" >"$1"
}

write_node_config() {
  mkdir -p "$ETC/cni"
  write_containerd
  write_cni
  write_kubelet
  write_kube_proxy
  write_resolvers
}

# restrict_oom_score_adj: a lower score than the parent's needs a capability
# that root in a container does not have. SystemdCgroup: no systemd is needed.
write_containerd() {
  write "$ETC/containerd.toml" <<TOML
version = 3
root = "$STATE/containerd/root"
state = "$STATE/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$CONTAINERD"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$CNI_BIN", "$BIN"]
    conf_dir = "$ETC/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
[plugins."io.containerd.nri.v1.nri"]
  disable = true
TOML
}

# hairpinMode: a pod reaches itself through its Service. The last plugin hands
# the new address to netpol: a container starts when its policies are in force.
write_cni() {
  install -m 755 "$HERE/src/netpol/netpol-cni" "$BIN/netpol-cni"
  write "$ETC/cni/pods.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "swe-argo", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$STATE/addresses", "ranges": [[{"subnet": "$POD_CIDR", "gateway": "$GATEWAY"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}},
  {"type": "netpol-cni"}]}
JSON
}

# imageGC: what came from an archive cannot be pulled again. failCgroupV1 false:
# cgroup v1 still works, and is what some machines have. ImageVolume: as from
# Kubernetes 1.35 on.
write_kubelet() {
  write "$ETC/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $GATEWAY
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true, cacheTTL: 30s}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
containerRuntimeEndpoint: unix://$CONTAINERD
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [$DNS_SERVICE]
clusterDomain: cluster.local
resolvConf: $ETC/resolv.conf
podLogsDir: $STATE/pod-logs
volumePluginDir: $STATE/kubelet-plugins
maxPods: $MAX_PODS
kubeAPIQPS: 100
kubeAPIBurst: 200
eventRecordQPS: 100
eventBurst: 200
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 200Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
evictionPressureTransitionPeriod: 10s
featureGates: {ImageVolume: true}
YAML
}

write_kube_proxy() { # conntrack 0: the kernel's own tables stay as they are
  write "$ETC/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $POD_CIDR
clientConnection: {kubeconfig: $ETC/kube-proxy.conf}
hostnameOverride: $NODE
bindAddress: $GATEWAY
healthzBindAddress: $GATEWAY:10256
metricsBindAddress: 127.0.0.1:10249
nodePortAddresses: [$POD_CIDR]
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
YAML
}

# What the cluster's DNS asks for names that are not its own: this machine's
# name servers, as far as pods reach them (a loopback one is a pod's own).
write_resolvers() {
  local file=/etc/resolv.conf
  [ ! -e /run/systemd/resolve/resolv.conf ] || file=/run/systemd/resolve/resolv.conf
  { echo 'search .'; grep -E '^nameserver +[0-9]' "$file" 2>/dev/null | grep -vE ' 127\.' || true; } | write "$ETC/resolv.conf"
}
