{{- define "swe-argo.view.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: view
{{- end }}

{{- define "swe-argo.view.labels" -}}
{{ include "swe-argo.labels" . }}
app.kubernetes.io/component: view
{{- end }}

{{- /* The Secret with the token of those who look. */ -}}
{{- define "swe-argo.view.token" -}}
{{ .Values.view.existingSecret | default "swe-argo-view" }}
{{- end }}
