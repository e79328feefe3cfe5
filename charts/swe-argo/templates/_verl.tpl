{{- define "swe-argo.verl.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: verl
{{- end }}

{{- define "swe-argo.verl.labels" -}}
{{ include "swe-argo.labels" . }}
app.kubernetes.io/component: verl
{{- end }}

{{- /* Where the values say nothing else: that of the steps' registry and tag, as the image of training. */ -}}
{{- define "swe-argo.verl.image" -}}
{{ include "swe-argo.image.beside" (list . .Values.verl.image "swe-argo-verl") }}
{{- end }}

{{- /* What runs in it: each a word, as a JSON list. */ -}}
{{- define "swe-argo.verl.command" -}}
{{- $verl := .Values.verl -}}
{{- $words := list "python3" "-m" "verl.trainer.main_ppo" "--config-path" "/opt/swe-argo/swe_argo/templates/verl" "--config-name" "grpo"
  (printf "trainer.experiment_name=%s" $verl.name) (printf "trainer.nnodes=%d" (int64 $verl.nodes))
  (printf "trainer.n_gpus_per_node=%d" (int64 $verl.gpus)) -}}
{{ concat $words ($verl.overrides | default list) | toJson }}
{{- end }}

{{- /* A pod with GPUs, as a template: (list $ COMMAND FIRST). The command is a JSON list, empty where KubeRay begins Ray in it;
the first pod prepares. */ -}}
{{- define "swe-argo.verl.pod" -}}
{{- $root := index . 0 -}}{{- $command := index . 1 -}}{{- $verl := $root.Values.verl -}}
metadata:
  labels: {{- include "swe-argo.verl.selector" $root | nindent 4 }}
  annotations:
    # A node is not emptied for the sake of its price while it learns.
    karpenter.sh/do-not-disrupt: "true"
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
spec:
  # Makes sandboxes, and may do nothing else: Role swe-argo-runner and its admission policies.
  serviceAccountName: {{ $root.Values.serviceAccount.name }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  restartPolicy: Never
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with $verl.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $verl.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $verl.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if and (index . 2) $verl.prepare }}
  initContainers:
    - name: prepare
      command: {{ toJson $verl.prepare }}
      {{- include "swe-argo.verl.container" $root | nindent 6 }}
  {{- end }}
  containers:
    - name: verl
      {{- with $command }}
      command: {{ . }}
      {{- end }}
      {{- include "swe-argo.verl.container" $root | nindent 6 }}
      resources:
        requests: {{- toYaml (merge (dict $verl.gpuResource (int64 $verl.gpus)) (($verl.resources | default dict).requests | default dict)) | nindent 10 }}
        limits: {{- toYaml (merge (dict $verl.gpuResource (int64 $verl.gpus)) (($verl.resources | default dict).limits | default dict)) | nindent 10 }}
  volumes:
    - name: trainings
      persistentVolumeClaim: {claimName: {{ $verl.existingClaim }}}
    - name: tmp
      emptyDir: {}
    # NCCL and Ray hand tensors from process to process there.
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $verl.sharedMemory }}}
{{- end }}

{{- /* What both containers have. */ -}}
{{- define "swe-argo.verl.container" -}}
image: {{ include "swe-argo.verl.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  # The pod owns its sandboxes: they go with it.
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: HOME, value: /trainings}
  # No name goes with the number of the user, and PyTorch asks for one.
  - {name: USER, value: swe-argo}
  - {name: HF_ENDPOINT, value: {{ .Values.hub.endpoint | trimSuffix "/" | quote }}}
  - {name: HF_HOME, value: /trainings/huggingface}
  - {name: SWE_ARGO_VERL, value: /opt/swe-argo/swe_argo/templates/verl}
  - {name: SWE_ARGO_VERL_DATA, value: /trainings/data}
  - {name: SWE_ARGO_VERL_LOGS, value: /trainings/logs}
  {{- range $name, $value := .Values.verl.env }}
  - {name: {{ $name }}, value: {{ quote $value }}}
  {{- end }}
{{- with list .Values.verl.existingSecret .Values.sandbox.credentials.existingSecret | compact | uniq }}
envFrom:
  {{- range . }}
  - secretRef: {name: {{ . }}, optional: true}
  {{- end }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: trainings, mountPath: /trainings}
  - {name: tmp, mountPath: /tmp}
  - {name: shm, mountPath: /dev/shm}
{{- end }}
