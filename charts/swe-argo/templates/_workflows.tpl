{{- /* A file of argo/ with the labels of the release: (list $ "swe-argo-shard"). */ -}}
{{- define "swe-argo.workflow" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 | printf "argo/%s.yaml" -}}
{{- $text := $root.Files.Get $path -}}
{{- if not $text }}{{ fail (printf "the chart lacks %s: package it from a checkout, where `python -m workflows.templates.render` writes it" $path) }}{{ end -}}
{{- $object := fromYaml $text -}}
{{- with $object.Error }}{{ fail (printf "%s: %s" $path .) }}{{ end -}}
{{- $labels := merge (include "swe-argo.labels" $root | fromYaml) (dig "metadata" "labels" dict $object) -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- range dig "spec" "templates" list $object -}}
{{- if eq .name "shard" }}{{ $_ := set . "parallelism" (include "swe-argo.window" $root | int64) }}{{ end -}}
{{- end -}}
{{ toYaml $object }}
{{- end }}

{{- /* The CronWorkflow with what the values say: (list $ CRONWORKFLOW). A value that is null leaves the file's own. */ -}}
{{- define "swe-argo.nightly" -}}
{{- $values := (index . 0).Values.nightly -}}
{{- $cron := index . 1 -}}
{{- range list "schedules" "timezone" "suspend" }}{{ $_ := set $cron.spec . (index $values .) }}{{ end -}}
{{- $wish := dict -}}
{{- range list "dataset" "split" "k" "validated" "agent" "model" "attempts" "backend" "spec" "compareWith" "stopOnCanary" -}}
{{- $value := index $values . -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $wish (kebabcase .) (toString $value) }}{{ end -}}
{{- end -}}
{{- $arguments := dig "arguments" dict $cron.spec.workflowSpec -}}
{{- $parameters := list -}}
{{- range dig "parameters" list $arguments -}}
{{- if not (hasKey $wish .name) }}{{ $parameters = append $parameters . }}{{ end -}}
{{- end -}}
{{- range $name, $value := $wish }}{{ $parameters = append $parameters (dict "name" $name "value" $value) }}{{ end -}}
{{- $_ := set $cron.spec.workflowSpec "arguments" (set $arguments "parameters" $parameters) -}}
{{ toYaml $cron }}
{{- end }}
