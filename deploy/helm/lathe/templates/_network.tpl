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

{{- /* To a service of yours: {port, to: NetworkPolicyPeers}. */ -}}
{{- define "lathe.serviceEgress" -}}
- to:
    {{- with .to }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    # An ipBlock is for addresses outside the cluster. Cilium, for example, never matches a pod with it.
    - ipBlock: {cidr: 0.0.0.0/0, except: [169.254.169.254/32]}
    - ipBlock: {cidr: "::/0", except: ["fd00:ec2::254/128"]}
    - namespaceSelector: {}
    {{- end }}
  ports: [{port: {{ .port }}}]
{{- end }}

{{- define "lathe.tracingEgress" -}}
{{- if dig "tracing" "endpoint" "" .Values.config }}
{{ include "lathe.serviceEgress" (dict "port" .Values.networkPolicy.tracingPort "to" .Values.networkPolicy.tracingTo) }}
{{- end }}
{{- end }}

{{- define "lathe.storeEgress" -}}
{{- if eq .Values.storage.kind "s3" }}
{{ include "lathe.serviceEgress" (dict "port" .Values.networkPolicy.objectStorePort "to" .Values.networkPolicy.objectStoreTo) }}
{{- end }}
{{- end }}
