{{- /* What a sandbox must not be given: anything of its node, its namespace or its cluster. */ -}}
{{- define "swe-argo.confinement" -}}
- expression: size(variables.pod.containers) == 1
  reason: Forbidden
  message: "a sandbox has one container"
- expression: size(variables.pod.?ephemeralContainers.orValue([])) == 0
  reason: Forbidden
  message: "a sandbox has no ephemeral containers"
{{ include "swe-argo.copier" . }}
- expression: variables.pod.?serviceAccountName.orValue('') == 'swe-argo-sandbox'
  reason: Forbidden
  message: "a sandbox runs as the service account swe-argo-sandbox"
- expression: variables.pod.?automountServiceAccountToken.orValue(true) == false
  reason: Forbidden
  message: "a sandbox has no token: automountServiceAccountToken is false"
- expression: >-
    !variables.pod.?hostNetwork.orValue(false) && !variables.pod.?hostPID.orValue(false)
    && !variables.pod.?hostIPC.orValue(false)
  reason: Forbidden
  message: "a sandbox shares no namespace of its node: no hostNetwork, hostPID, hostIPC"
- expression: variables.box.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0 && port.?hostIP.orValue('') == '')
  reason: Forbidden
  message: "a sandbox has no port of its node: no hostPort, hostIP"
- expression: >-
    variables.pod.?volumes.orValue([]).all(volume, has(volume.emptyDir)
    || (volume.name == 'agent-files' && has(volume.image)))
  reason: Forbidden
  message: "a sandbox's volumes are of type emptyDir, but for the image of an agent's files"
- expression: >-
    size(variables.box.?envFrom.orValue([])) == 0
    && variables.box.?env.orValue([]).all(each, !has(each.valueFrom) || has(each.valueFrom.fieldRef))
  reason: Forbidden
  message: "a sandbox's environment takes nothing from secrets or config maps"
- expression: "!variables.box.?securityContext.?privileged.orValue(false)"
  reason: Forbidden
  message: "a sandbox is not privileged"
- expression: variables.box.?securityContext.?allowPrivilegeEscalation.orValue(true) == false
  reason: Forbidden
  message: "a sandbox has allowPrivilegeEscalation false"
{{- if .Values.sandbox.browsers }}
- expression: variables.added.all(each, each == 'SYS_ADMIN')
  reason: Forbidden
  message: "a sandbox adds no capability but SYS_ADMIN"
{{- else }}
- expression: size(variables.added) == 0
  reason: Forbidden
  message: "a sandbox adds no capability; browsers need SYS_ADMIN (chart value sandbox.browsers)"
{{- end }}
- expression: >-
    variables.box.?securityContext.?seccompProfile.orValue(
    variables.pod.?securityContext.?seccompProfile.orValue({'type': 'none'})).type == 'RuntimeDefault'
  reason: Forbidden
  message: "a sandbox has the seccomp profile RuntimeDefault"
- expression: >-
    variables.box.?securityContext.?procMount.orValue('Default') == 'Default'
    && variables.box.?securityContext.?appArmorProfile.?type.orValue('') != 'Unconfined'
    && variables.pod.?securityContext.?appArmorProfile.?type.orValue('') != 'Unconfined'
    && !variables.box.?securityContext.?seLinuxOptions.hasValue()
    && !variables.pod.?securityContext.?seLinuxOptions.hasValue()
    && size(variables.pod.?securityContext.?sysctls.orValue([])) == 0
  reason: Forbidden
  message: "a sandbox keeps the runtime's defaults: no procMount, sysctls, SELinux options or unconfined AppArmor"
# The kubelet would make these requests, from the node's network.
- expression: >-
    !has(variables.box.lifecycle) && !has(variables.box.livenessProbe)
    && !has(variables.box.readinessProbe) && !has(variables.box.startupProbe)
  reason: Forbidden
  message: "a sandbox has neither probes nor lifecycle hooks"
{{- with include "swe-argo.priority" . }}
- expression: variables.pod.?priorityClassName.orValue('') == {{ toJson . }}
  reason: Forbidden
  message: "a sandbox has the priority class {{ . }} (chart value priorityClass.name)"
{{- else }}
- expression: "!variables.pod.?priorityClassName.orValue('').startsWith('system-')"
  reason: Forbidden
  message: "a sandbox has no priority class of the system"
{{- end }}
{{- $selector := .Values.sandbox.nodeSelector | default dict }}
- expression: {{ toJson $selector | printf "%s.all(key, variables.selector[?key].orValue('') == %s[key])" (keys $selector | sortAlpha | toJson) | toJson }}
  reason: Forbidden
  message: "a sandbox goes to the nodes that the chart names: nodeSelector has {{ range $key, $value := $selector }}{{ $key }}={{ $value }} {{ end }}(chart value sandbox.nodeSelector)"
- expression: {{ concat (keys $selector | sortAlpha) (list "kubernetes.io/os" "kubernetes.io/arch") | toJson | printf "variables.selector.all(key, key in %s)" | toJson }}
  reason: Forbidden
  message: "a sandbox chooses no nodes by other labels than the chart does (chart value sandbox.nodeSelector)"
- expression: variables.pod.?runtimeClassName.orValue('') == {{ toJson .Values.sandbox.runtimeClassName }}
  reason: Forbidden
  message: "a sandbox has {{ with .Values.sandbox.runtimeClassName }}the runtime class {{ . }}{{ else }}no runtime class{{ end }} (chart value sandbox.runtimeClassName)"
{{- with .Values.sandbox.imagePrefixes }}
{{- $allowed := printf "%s.exists(prefix, image.startsWith(prefix))" (toJson .) }}
{{- $message := join ", " . | printf "image %%s begins with none of %s (chart value sandbox.imagePrefixes)" | toJson }}
- expression: {{ printf "variables.images.all(image, %s)" $allowed | squote }}
  reason: Forbidden
  messageExpression: {{ printf "%s.format([variables.images.filter(image, !%s)[0]])" $message $allowed | squote }}
{{- end }}
{{- end }}
