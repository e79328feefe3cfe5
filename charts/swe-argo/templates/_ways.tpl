{{- /* The rule that lets through to the API server. */ -}}
{{- define "swe-argo.apiserver" -}}
- to:
    {{- range .Values.network.apiServerCIDRs }}
    - ipBlock: {cidr: {{ quote . }}}
    {{- end }}
  ports:
    {{- range .Values.network.apiServerPorts }}
    - {protocol: TCP, port: {{ int64 . }}}
    {{- end }}
{{- end }}

{{- /* What our own programs reach outside the namespace, as rules of an egress: names, hubs, the bucket, models. */ -}}
{{- define "swe-argo.outside" -}}
{{- $four := list }}
{{- $six := list }}
{{- range .Values.grading.denyCIDRs }}
  {{- if contains ":" . }}{{ $six = append $six . }}{{ else }}{{ $four = append $four . }}{{ end }}
{{- end -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.grading.dns.namespace }}
      podSelector:
        matchLabels: {{- toYaml .Values.grading.dns.podLabels | nindent 10 }}
    # Where nodes keep a DNS cache of their own.
    - ipBlock: {cidr: 169.254.20.10/32}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
# Models, hubs, Amazon's S3 and STS.
- to:
    - ipBlock: {cidr: 0.0.0.0/0, except: {{ toJson $four }}}
    - ipBlock: {cidr: "::/0", except: {{ toJson $six }}}
  ports:
    - {protocol: TCP, port: 443}
# The agent of EKS Pod Identity.
- to:
    - ipBlock: {cidr: 169.254.170.23/32}
    - ipBlock: {cidr: "fd00:ec2::23/128"}
  ports:
    - {protocol: TCP, port: 80}
{{- range list (include "swe-argo.s3" .) .Values.hub.endpoint | compact | uniq }}
{{- with include "swe-argo.way" . }}
{{ . }}
{{- end }}
{{- end }}
{{- range .Values.network.allow }}
- to:
    {{- if .cidr }}
    - ipBlock: {cidr: {{ quote .cidr }}}
    {{- else }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ quote .namespace }}
      {{- with .podLabels }}
      podSelector:
        matchLabels: {{- toYaml . | nindent 10 }}
      {{- end }}
    {{- end }}
  ports:
    {{- range .ports }}
    {{- $range := splitList "-" (toString .) }}
    - {protocol: TCP, port: {{ first $range }}{{ if rest $range }}, endPort: {{ last $range }}{{ end }}}
    {{- end }}
{{- end }}
{{- end }}

{{- /* The rule that lets through to a URL, if those above do not. A policy knows no names: such a host may be anywhere. */ -}}
{{- define "swe-argo.way" -}}
{{- $url := urlParse . -}}
{{- $host := $url.host | splitList ":" -}}
{{- $port := eq $url.scheme "http" | ternary "80" "443" -}}
{{- if rest $host }}{{ $port = last $host }}{{ end -}}
{{- if regexMatch "^[0-9.]+$" (first $host) -}}
- to:
    - ipBlock: {cidr: {{ first $host }}/32}
  ports:
    - {protocol: TCP, port: {{ $port }}}
{{- else if ne $port "443" -}}
- to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}
    - ipBlock: {cidr: "::/0", except: ["fe80::/10", "fd00:ec2::/32"]}
  ports:
    - {protocol: TCP, port: {{ $port }}}
{{- end }}
{{- end }}
