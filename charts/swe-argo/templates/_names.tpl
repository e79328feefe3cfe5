{{- define "swe-argo.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "swe-argo.runner" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.serviceAccount.name }}
{{- end }}

{{- /* Cluster-scoped, so it names its namespace. */ -}}
{{- define "swe-argo.priority" -}}
{{- if .Values.priorityClass.create -}}
{{ .Values.priorityClass.name | default (printf "swe-argo-sandbox-%s" .Release.Namespace) }}
{{- else -}}
{{ .Values.priorityClass.name }}
{{- end -}}
{{- end }}

{{- /* The roles of the sandboxes that may have network, as a JSON list. */ -}}
{{- define "swe-argo.open" -}}
{{- $roles := list -}}
{{- if .Values.grading.network }}{{ $roles = append $roles "grade" }}{{ end -}}
{{- if .Values.sandbox.solveNetwork }}{{ $roles = append $roles "solve" }}{{ end -}}
{{ toJson $roles }}
{{- end }}
