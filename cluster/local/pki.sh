# Certificates and kubeconfig files: made once, kept by `down`.
# shellcheck shell=bash

new_key() { echo -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes; }

openssl_req() { # a certificate in one call; no extensions but those asked for
  # shellcheck disable=SC2046
  openssl req -x509 -sha256 -days 3650 $(new_key) -config <(printf '[req]\ndistinguished_name=name\n[name]\n') "$@" 2>/dev/null
}

authority() { # FILE: a certificate authority
  [ -s "$PKI/$1.crt" ] || openssl_req -subj "/CN=$1" -keyout "$PKI/$1.key" -out "$PKI/$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

certificate() { # AUTHORITY FILE SUBJECT [ALTERNATIVE-NAMES]: for clients and servers
  [ -s "$PKI/$2.crt" ] || openssl_req -CA "$PKI/$1.crt" -CAkey "$PKI/$1.key" \
    -subj "$3" -keyout "$PKI/$2.key" -out "$PKI/$2.crt" \
    -addext basicConstraints=CA:FALSE -addext keyUsage=digitalSignature -addext extendedKeyUsage=clientAuth,serverAuth \
    ${4:+-addext "subjectAltName=$4"}
}

kubeconfig() { # FILE USER
  [ -s "$1" ] && return
  (umask 077 && cat >"$1") <<YAML
apiVersion: v1
kind: Config
current-context: swe-argo
contexts: [{name: swe-argo, context: {cluster: swe-argo, user: $2}}]
clusters:
- name: swe-argo
  cluster: {server: "https://$GATEWAY:$API_PORT", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}
users:
- name: $2
  user: {client-certificate-data: $(base64 -w0 "$PKI/$2.crt"), client-key-data: $(base64 -w0 "$PKI/$2.key")}
YAML
}

write_pki() {
  mkdir -p "$PKI"
  chmod 700 "$PKI"
  authority ca
  authority front-proxy-ca # aggregated API servers trust request headers signed so
  certificate front-proxy-ca front-proxy /CN=front-proxy-client
  certificate ca apiserver /CN=kube-apiserver "IP:$GATEWAY,IP:127.0.0.1,IP:$API_SERVICE,DNS:localhost,\
DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate ca apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
  # The Node authorizer goes by this name and group.
  certificate ca kubelet "/O=system:nodes/CN=system:node:$NODE" "DNS:$NODE,IP:$GATEWAY"
  local user
  for user in kube-controller-manager kube-scheduler kube-proxy; do certificate ca $user "/CN=system:$user"; done
  certificate ca netpol /CN=netpol
  certificate ca admin /O=system:masters/CN=admin
  for user in kubelet kube-controller-manager kube-scheduler kube-proxy netpol; do kubeconfig "$ETC/$user.conf" $user; done
  kubeconfig "$ADMIN" admin
  if [ ! -s "$PKI/accounts.pub" ]; then # signs the tokens of service accounts
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$PKI/accounts.key" 2>/dev/null
    openssl pkey -in "$PKI/accounts.key" -pubout -out "$PKI/accounts.pub"
  fi
}
