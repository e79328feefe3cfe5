{{- /* What a sandbox may have at all: what the project sets, as the chart's values say it. Whatever else is refused by name. */ -}}
{{- define "swe-argo.allowed" -}}
{{- $box := .Values.sandbox -}}
- expression: size(object.metadata.?finalizers.orValue([])) == 0
  reason: Forbidden
  message: "a sandbox has no finalizers"
{{ include "swe-argo.only" (list "variables.labels" (list "swe-argo/role" "swe-argo/run" "swe-argo/instance" "swe-argo/attempt" "swe-argo/network")
  "a sandbox has labels that the project does not set") }}
{{- /* Others annotate pods that are there. The last is the API server's own, where a LimitRange fills something in. */}}
{{ include "swe-argo.only" (list "variables.annotations" (list "swe-argo/instance" "swe-argo/request"
  "cluster-autoscaler.kubernetes.io/safe-to-evict" "karpenter.sh/do-not-disrupt" "kubernetes.io/limit-ranger")
  "a sandbox has annotations that the project does not set") }}
{{ include "swe-argo.only" (list "object.metadata" (list "name" "namespace" "uid" "creationTimestamp" "generation" "resourceVersion"
  "managedFields" "labels" "annotations" "ownerReferences")
  "a sandbox has metadata that the project does not set") }}
- expression: "object.metadata.?ownerReferences.orValue([]).all(owner, dyn(owner).all(key, key in ['apiVersion', 'kind', 'name', 'uid']))"
  reason: Forbidden
  message: "a sandbox names its owner by apiVersion, kind, name and uid, and nothing else: no controller, no blockOwnerDeletion"
- expression: request.operation != 'CREATE' || variables.pod.?nodeName.orValue('') == ''
  reason: Forbidden
  message: "a sandbox goes where the scheduler puts it: no nodeName"
- expression: variables.pod.?schedulerName.orValue('default-scheduler') == 'default-scheduler'
  reason: Forbidden
  message: "a sandbox has the default scheduler"
- expression: variables.pod.?restartPolicy.orValue('') == 'Never'
  reason: Forbidden
  message: "a sandbox has restartPolicy Never"
- expression: variables.pod.?terminationGracePeriodSeconds.orValue(30) == 1
  reason: Forbidden
  message: "a sandbox ends at once: terminationGracePeriodSeconds is 1"
- expression: variables.pod.?enableServiceLinks.orValue(true) == false
  reason: Forbidden
  message: "a sandbox is told of no Services: enableServiceLinks is false"
- expression: {{ include "swe-argo.tolerated" . | toJson }}
  reason: Forbidden
  message: "a sandbox tolerates the taints that the chart names, and no others (chart value sandbox.tolerations)"
- expression: {{ $box.imagePullSecrets | default list | toJson | printf "variables.pod.?imagePullSecrets.orValue([]).all(secret, secret.?name.orValue('') in %s)" | toJson }}
  reason: Forbidden
  message: "a sandbox's image is pulled with the secrets that the chart names, and no others (chart value sandbox.imagePullSecrets)"
- expression: >-
    variables.network != 'none' || (variables.pod.?dnsPolicy.orValue('') == 'None'
    && dyn(variables.pod).?dnsConfig.orValue({}) == {'nameservers': ['127.0.0.1']})
  reason: Forbidden
  message: "a sandbox without network resolves no names: dnsPolicy None, and the nameserver 127.0.0.1"
{{- if $box.nameservers }}
- expression: {{ $box.nameservers | toJson | printf "variables.network != 'open' || (variables.pod.?dnsPolicy.orValue('') == 'None' && dyn(variables.pod).?dnsConfig.orValue({}) == {'nameservers': %s})" | toJson }}
  reason: Forbidden
  message: "a sandbox with network has dnsPolicy None, and the nameservers {{ join ", " $box.nameservers }} (chart value sandbox.nameservers)"
{{- else }}
- expression: >-
    variables.network != 'open'
    || (variables.pod.?dnsPolicy.orValue('') == 'ClusterFirst' && !has(variables.pod.dnsConfig))
  reason: Forbidden
  message: "a sandbox with network has dnsPolicy ClusterFirst, and no dnsConfig (chart value sandbox.nameservers)"
{{- end }}
- expression: >-
    variables.network != 'none'
    || variables.box.?securityContext.?capabilities.?drop.orValue([]).exists(each, each in ['NET_RAW', 'ALL'])
  reason: Forbidden
  message: "a sandbox without network drops the capability NET_RAW"
- expression: >-
    variables.pod.?volumes.orValue([]).all(volume, has(volume.image)
    || (has(volume.emptyDir.sizeLimit) && dyn(volume.emptyDir).all(key, key == 'sizeLimit')
    && quantity(string(dyn(volume.emptyDir).sizeLimit)).compareTo(quantity({{ index $box.maxResources "ephemeral-storage" | toString | toJson }})) <= 0))
  reason: Forbidden
  message: "a sandbox's volumes lie on disk and have an end: each has a sizeLimit within sandbox.maxResources, and no medium"
- expression: >-
    variables.box.?volumeMounts.orValue([]).all(mount, dyn(mount).all(key, key in ['name', 'mountPath', 'readOnly']))
  reason: Forbidden
  message: "a sandbox mounts its volumes whole: a name and a mountPath, and nothing else"
- expression: >-
    variables.box.?volumeMounts.orValue([]).all(mount, mount.name != 'agent-files' || mount.?readOnly.orValue(false))
  reason: Forbidden
  message: "a sandbox does not write into an agent's files: their mount is readOnly"
{{- $limits := list }}
{{- range $name, $amount := $box.resources.limits }}{{ if $amount }}{{ $limits = append $limits $name }}{{ end }}{{ end }}
- expression: {{ toJson $limits | printf "%s.all(name, name in variables.box.?resources.?limits.orValue({}))" | toJson }}
  reason: Forbidden
  message: "a sandbox has limits of {{ join ", " $limits }} (chart value sandbox.resources.limits)"
{{- $known := list "cpu" "memory" "ephemeral-storage" | toJson }}
- expression: {{ printf "dyn(variables.box.?resources.orValue({})).all(kind, kind in ['limits', 'requests'] && variables.box.resources[kind].all(name, name in %s))" $known | toJson }}
  reason: Forbidden
  message: "a sandbox asks for cpu, memory and ephemeral-storage, and for nothing else"
{{- range $name, $most := $box.maxResources }}
- expression: {{ printf "['limits', 'requests'].all(kind, !(%q in dyn(variables.box).?resources[?kind].orValue({})) || quantity(string(dyn(variables.box).resources[kind][%q])).compareTo(quantity(%q)) <= 0)" $name $name (toString $most) | toJson }}
  reason: Forbidden
  message: "a sandbox has at most {{ $most }} of {{ $name }} (chart value sandbox.maxResources)"
{{- end }}
{{ include "swe-argo.only" (list "variables.pod.?securityContext.orValue({})" (list "runAsUser" "runAsGroup" "seccompProfile")
  "a sandbox's pod has a securityContext with fields that the project does not set") }}
{{ include "swe-argo.only" (list "variables.box.?securityContext.orValue({})" (list "allowPrivilegeEscalation" "capabilities" "seccompProfile")
  "a sandbox has a securityContext with fields that the project does not set") }}
{{- /* The last of both are the API server's own defaults. */}}
{{ include "swe-argo.only" (list "variables.box" (list "name" "image" "imagePullPolicy" "command" "args" "workingDir" "resources"
  "securityContext" "volumeMounts" "terminationMessagePath" "terminationMessagePolicy" "resizePolicy")
  "a sandbox's container has fields that the project does not set") }}
{{ include "swe-argo.only" (list "variables.pod" (list "containers" "initContainers" "volumes" "restartPolicy" "activeDeadlineSeconds"
  "terminationGracePeriodSeconds" "serviceAccountName" "automountServiceAccountToken" "enableServiceLinks" "securityContext"
  "nodeSelector" "tolerations" "priorityClassName" "runtimeClassName" "imagePullSecrets" "dnsPolicy" "dnsConfig"
  "serviceAccount" "schedulerName" "priority" "preemptionPolicy" "overhead" "nodeName")
  "a sandbox's pod has fields that the project does not set") }}
{{- end }}

{{- /* A rule: no key of a map but these; the message ends in those that are too many. (list EXPRESSION KEYS MESSAGE) */ -}}
{{- define "swe-argo.only" -}}
{{- $map := index . 0 -}}{{- $keys := index . 1 | toJson -}}
- expression: {{ printf "dyn(%s).all(key, key in %s)" $map $keys | toJson }}
  reason: Forbidden
  messageExpression: {{ printf "'%s: ' + dyn(%s).filter(key, !(key in %s)).join(', ')" (replace "'" "\\'" (index . 2)) $map $keys | toJson }}
{{- end }}

{{- /* Every toleration is one of the chart's, or one that the API server itself gives to pods. */ -}}
{{- define "swe-argo.tolerated" -}}
variables.pod.?tolerations.orValue([]).all(each,
(each.?key.orValue('') in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable'] && each.?effect.orValue('') == 'NoExecute')
|| (each.?key.orValue('') == 'node.kubernetes.io/memory-pressure' && each.?effect.orValue('') == 'NoSchedule')
|| {{ include "swe-argo.literal" .Values.sandbox.tolerations }}.exists(given,
['key', 'operator', 'value', 'effect'].all(part, dyn(given)[?part].orValue('') == dyn(each)[?part].orValue(''))
&& dyn(given)[?'tolerationSeconds'].orValue(-1) == dyn(each)[?'tolerationSeconds'].orValue(-1)))
{{- end }}

{{- /* A list of maps for CEL, in which the values of a map have one type. */ -}}
{{- define "swe-argo.literal" -}}
{{- $maps := list -}}
{{- range . -}}
{{- $entries := list -}}
{{- range $key, $value := . }}{{ $entries = append $entries (printf "%s: dyn(%s)" (toJson $key) (toJson $value)) }}{{ end -}}
{{- $maps = append $maps (printf "{%s}" (join ", " $entries)) -}}
{{- end -}}
[{{ join ", " $maps }}]
{{- end }}
