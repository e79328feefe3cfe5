{{- define "swe-argo.proxy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "swe-argo.proxy.labels" -}}
{{ include "swe-argo.labels" . }}
app.kubernetes.io/component: proxy
{{- end }}

{{- /* Where the pods of runs ask it. Empty without a proxy. */ -}}
{{- define "swe-argo.proxy.url" -}}
{{- if .Values.proxy.enabled }}http://swe-argo-proxy.{{ .Release.Namespace }}.svc:8000/v1{{ end -}}
{{- end }}

{{- /* The Secret with the key of those who ask. Empty without a proxy. */ -}}
{{- define "swe-argo.proxy.callers" -}}
{{- if .Values.proxy.enabled }}{{ .Values.proxy.callers.existingSecret | default "swe-argo-proxy" }}{{ end -}}
{{- end }}

{{- /* The image of training. */ -}}
{{- define "swe-argo.training.image" -}}
{{ include "swe-argo.image.beside" (list . .Values.training.image "swe-argo-training") }}
{{- end }}

{{- /* The proxy's words: each a flag, as a JSON list. */ -}}
{{- define "swe-argo.proxy.flags" -}}
{{- $proxy := .Values.proxy -}}
{{- $flags := list "--host=0.0.0.0" "--port=8000" (printf "--base-model=%s" $proxy.baseModel) (printf "--name=%s" $proxy.name)
  (printf "--at-once=%d" (int64 $proxy.atOnce)) (printf "--timeout=%d" (int64 $proxy.timeoutSeconds)) -}}
{{- with $proxy.tokenizer }}{{ $flags = append $flags (printf "--tokenizer=%s" .) }}{{ end -}}
{{- with $proxy.weights }}{{ $flags = append $flags (printf "--weights=%s" .) }}{{ end -}}
{{- with $proxy.context }}{{ $flags = append $flags (printf "--context=%d" (int64 .)) }}{{ end -}}
{{- with $proxy.toolFormat }}{{ $flags = append $flags (printf "--tool-format=%s" .) }}{{ end -}}
{{- if $proxy.training -}}
{{- $store := printf "--store=s3://%s/%s" .Values.aws.s3.bucket (include "swe-argo.prefix" .) -}}
{{- $flags = concat $flags (list $store (printf "--pointer=trainings/%s/weights.json" $proxy.training) (printf "--refresh=%d" (int64 $proxy.refreshSeconds))) -}}
{{- end -}}
{{ toJson $flags }}
{{- end }}
