{{- /* Parts of NetworkPolicies. */ -}}

{{- define "lathe.peer" -}}
- podSelector:
    matchLabels:
      {{- include "lathe.selector" . | nindent 6 }}
{{- end }}

{{- define "lathe.metricsIngress" -}}
{{- with .Values.networkPolicy.prometheusNamespace }}
- from:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ . }}}
  ports: [{port: metrics}]
{{- end }}
{{- end }}

{{- define "lathe.dnsEgress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end }}

{{- define "lathe.outsideEgress" -}}
- to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32]}
    - ipBlock: {cidr: "::/0", except: ["fd00:ec2::254/128"]}
  ports: [{port: {{ .port }}}]
{{- end }}

{{- define "lathe.tracingEgress" -}}
{{- if dig "tracing" "endpoint" "" .Values.config }}
{{ include "lathe.outsideEgress" (dict "port" .Values.networkPolicy.tracingPort) }}
{{- end }}
{{- end }}

{{- define "lathe.storeEgress" -}}
{{- if eq .Values.storage.kind "s3" }}
{{ include "lathe.outsideEgress" (dict "port" .Values.networkPolicy.objectStorePort) }}
{{- end }}
{{- end }}
