{{- /* "true" where the chart makes the pipeline, else empty. */ -}}
{{- define "swe-argo.pipeline" -}}
{{- if kindIs "bool" .Values.argo.create -}}
{{ .Values.argo.create | ternary "true" "" }}
{{- else if .Values.aws.s3.bucket -}}
true
{{- end -}}
{{- end }}

{{- /* Who touches the bucket: each of these has the annotations of the cloud's roles. */ -}}
{{- define "swe-argo.accounts" -}}
{{- $names := list .Values.serviceAccount.name -}}
{{- if include "swe-argo.pipeline" . -}}
{{- $names = concat $names (list "swe-argo-steps" "swe-argo-children" "swe-argo-trainer" "swe-argo-finalizer") -}}
{{- end -}}
{{- if .Values.proxy.enabled }}{{ $names = append $names "swe-argo-proxy" }}{{ end -}}
{{- if .Values.view.enabled }}{{ $names = append $names "swe-argo-view" }}{{ end -}}
{{ toJson $names }}
{{- end }}

{{- /* The steps' image; a tag sha256:... is a digest. */ -}}
{{- define "swe-argo.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion | toString -}}
{{ .Values.image.repository }}{{ hasPrefix "sha256:" $tag | ternary "@" ":" }}{{ $tag }}
{{- end }}

{{- /* Another image of the project: that of the steps' registry and tag, where its values say nothing else. A digest is one
image's. (list $ .Values.training.image "swe-argo-training") */ -}}
{{- define "swe-argo.image.beside" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- $beside := append ($root.Values.image.repository | splitList "/" | initial) (index . 2) | join "/" -}}
{{- $shared := hasPrefix "sha256:" (toString $root.Values.image.tag) | ternary "" $root.Values.image.tag -}}
{{- $tag := $image.tag | default $shared | default $root.Chart.AppVersion | toString -}}
{{ $image.repository | default $beside }}{{ hasPrefix "sha256:" $tag | ternary "@" ":" }}{{ $tag }}
{{- end }}

{{- /* Where `make push` put the steps' image and, beside it, mini's: what a run of mini names, unless the namespace does. */ -}}
{{- define "swe-argo.registry" -}}
{{- if not .Values.sandbox.registry -}}
{{- .Values.image.repository | splitList "/" | initial | join "/" -}}
{{- end -}}
{{- end }}

{{- /* Empty, or with a slash at the end and none at the begin. */ -}}
{{- define "swe-argo.prefix" -}}
{{- with .Values.aws.s3.prefix | trimAll "/" }}{{ . }}/{{ end -}}
{{- end }}

{{- /* Address of an S3 server that is not Amazon's, as a URL; else empty. */ -}}
{{- define "swe-argo.s3" -}}
{{- with .Values.aws.s3.endpoint | trimSuffix "/" -}}
{{- if contains "://" . }}{{ . }}{{ else }}{{ $.Values.aws.s3.insecure | ternary "http" "https" }}://{{ . }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* Units of a shard that are begun at a time: of few units a shard takes half, so that another run has its turn. */ -}}
{{- define "swe-argo.window" -}}
{{ min 10 (max 1 (div (int64 .Values.limits.units) 2)) }}
{{- end }}

{{- /* Shards that run at a time, a run's first not counted: a quarter more than hold all units keeps them busy. */ -}}
{{- define "swe-argo.shards" -}}
{{- $hundred := mul 100 (include "swe-argo.window" . | int64) -}}
{{ max 1 (div (add (mul (int64 .Values.limits.units) 125) (sub $hundred 1)) $hundred) }}
{{- end }}

{{- /* What the values say of swe-argo-limits, as a JSON object of strings. */ -}}
{{- define "swe-argo.limits" -}}
{{- $shards := include "swe-argo.shards" . -}}
{{ dict "units" (.Values.limits.units | int64 | toString) "shards" $shards "runs" (max 2 (int64 $shards) | toString) | toJson }}
{{- end }}

{{- /* A limit as it is to be: the value's, but one that was changed in the cluster since the chart wrote it, for as long as
the value does not change. `helm template` sees no cluster. (list $ "units" "50") */ -}}
{{- define "swe-argo.limit" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $value := index . 2 -}}
{{- $there := lookup "v1" "ConfigMap" $root.Release.Namespace "swe-argo-limits" -}}
{{- $written := dig "metadata" "annotations" (printf "swe-argo/%s" $name) "" $there -}}
{{- eq $written $value | ternary (dig "data" $name $value $there) $value -}}
{{- end }}

{{- /* A strategic merge patch for pods: (list $ "control" .Values.control). */ -}}
{{- define "swe-argo.pod" -}}
{{- $root := index . 0 -}}{{- $kind := index . 1 -}}{{- $wish := index . 2 -}}
{{- $pod := dict -}}
{{- with $wish.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- with $wish.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- with $wish.priorityClassName | default (include "swe-argo.class" (list $root (eq $kind "step" | ternary "step" "control"))) -}}
{{- $_ := set $pod "priorityClassName" . -}}
{{- end -}}
{{- if $root.Values.imagePullSecrets -}}
{{- $names := list -}}
{{- range $root.Values.imagePullSecrets }}{{ $names = append $names (dict "name" .) }}{{ end -}}
{{- $_ := set $pod "imagePullSecrets" $names -}}
{{- end -}}
{{- $main := dict -}}
{{- with $wish.resources }}{{ $_ := set $main "resources" . }}{{ end -}}
{{- /* IfNotPresent is what the WorkflowTemplates say themselves. */ -}}
{{- with $root.Values.image.pullPolicy }}{{ if ne . "IfNotPresent" }}{{ $_ := set $main "imagePullPolicy" . }}{{ end }}{{ end -}}
{{- $containers := list -}}
{{- if $main }}{{ $containers = append $containers (merge (dict "name" "main") $main) }}{{ end -}}
{{- if ne $kind "waiter" -}}
{{- /* A store that is away is waited for, some ten minutes: what a step has done is lost when it cannot be saved. By itself
Argo waits for ten seconds (docs/environment-variables.md, Executor). A resource template has no container wait. */ -}}
{{- $env := list -}}
{{- range $name, $value := dict "STEPS" "60" "DURATION" "5s" "FACTOR" "1" -}}
{{- $env = append $env (dict "name" (printf "EXECUTOR_RETRY_BACKOFF_%s" $name) "value" $value) -}}
{{- end -}}
{{- $containers = append $containers (dict "name" "wait" "env" $env) -}}
{{- $_ := set $pod "initContainers" (list (dict "name" "init" "env" $env)) -}}
{{- end -}}
{{- with $containers }}{{ $_ := set $pod "containers" . }}{{ end -}}
{{ toJson $pod }}
{{- end }}

{{- /* The chart's own PriorityClass of steps or control pods, where it makes any: (list $ "control"). */ -}}
{{- define "swe-argo.class" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.priorityClass.create }}swe-argo-{{ index . 1 }}-{{ $root.Release.Namespace }}{{ end -}}
{{- end }}
