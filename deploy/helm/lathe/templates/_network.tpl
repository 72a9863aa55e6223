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

{{- /* To the object store: {root, keys: the Secret with the pods' keys, or empty}. */ -}}
{{- define "lathe.storeEgress" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- if eq .root.Values.storage.kind "s3" }}
{{ include "lathe.serviceEgress" (dict "port" $policy.objectStorePort "to" $policy.objectStoreTo) }}
{{- if not .keys }}
# EKS Pod Identity: the agent of the node gives a pod its keys.
- to:
    - ipBlock: {cidr: 169.254.170.23/32}
    - ipBlock: {cidr: "fd00:ec2::23/128"}
  ports: [{port: 80}]
{{- if ne (int $policy.objectStorePort) 443 }}
# STS, which gives keys for a token of a service account.
{{ include "lathe.serviceEgress" (dict "port" 443 "to" list) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
