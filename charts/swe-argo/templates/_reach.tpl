{{- /*
What an account may touch of what it did not make, for Roles cannot tell by name or label: a policy and its binding.
(dict "root" $ "name" "runner-exec" "account" "swe-argo-runner" "group" "" "version" "v1" "operations" (list "DELETE")
"resources" (list "pods") "rules" (list (list EXPRESSION MESSAGE)))
In place of "account", "conditions" (list (list NAME EXPRESSION)) say whose requests are checked; "variables" the same way
name what the rules read. A message that begins with "=" is an expression.
*/ -}}
{{- define "swe-argo.reach" -}}
{{- $name := printf "swe-argo-%s-%s" .name .root.Release.Namespace -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "swe-argo.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [{{ quote .group }}]
        apiVersions: [{{ .version }}]
        operations: {{ toJson .operations }}
        resources: {{ toJson .resources }}
        scope: Namespaced
  matchConditions:
    {{- with .account }}
    - name: account
      expression: request.userInfo.username == {{ printf "system:serviceaccount:%s:%s" $.root.Release.Namespace . | toJson }}
    {{- end }}
    {{- range .conditions }}
    - name: {{ first . }}
      expression: {{ last . | quote }}
    {{- end }}
  {{- with .variables }}
  variables:
    {{- range . }}
    - name: {{ first . }}
      expression: {{ last . | quote }}
    {{- end }}
  {{- end }}
  validations:
    {{- range .rules }}
    - expression: {{ first . | quote }}
      reason: Forbidden
      {{ hasPrefix "=" (last .) | ternary "messageExpression" "message" }}: {{ last . | trimPrefix "=" | quote }}
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "swe-argo.labels" .root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
  matchResources:
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ .root.Release.Namespace }}
{{ end }}

{{- /* That nothing of a part of the object has changed, but for these keys. (list ".spec" KEYS), "" for the object itself. */ -}}
{{- define "swe-argo.same" -}}
{{- $part := index . 0 -}}{{- $keys := index . 1 | toJson -}}
{{- $new := $part | empty | ternary "dyn(object)" (printf "dyn(object).?%s.orValue({})" (trimPrefix "." $part)) -}}
{{- $old := $part | empty | ternary "dyn(oldObject)" (printf "dyn(oldObject).?%s.orValue({})" (trimPrefix "." $part)) -}}
{{ $new }}.all(key, key in {{ $keys }} || {{ $old }}[?key] == optional.of({{ $new }}[key])) && {{ $old }}.all(key, key in {{ $keys }} || key in {{ $new }})
{{- end }}
