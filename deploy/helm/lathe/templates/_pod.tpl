{{- /* Parts that all pods have. */ -}}

{{- define "lathe.podMetadata" -}}
labels:
  {{- include "lathe.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .group }}
  lathe.dev/group: {{ .name }}
  lathe.dev/role: {{ dig "config" "worker" "role" "both" . }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
annotations:
  # Another configuration is another pod.
  lathe.dev/config: {{ sha256sum .config }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "lathe.podSecurity" -}}
{{- /* The chart's own ServiceAccount does not exist yet when hooks run. */ -}}
{{- if not .isHook }}
serviceAccountName: {{ .account | default (include "lathe.serviceAccount" .) }}
{{- end }}
automountServiceAccountToken: false
# The variables of a Service called lathe would begin with LATHE_, as options do.
enableServiceLinks: {{ .serviceLinks | default false }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "lathe.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Engines and gateways prefer different machines: {root, component}. */ -}}
{{- define "lathe.placement" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "lathe.selector" . | nindent 14 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lathe.dataVolume" -}}
- name: data
  {{- if eq .Values.storage.kind "pvc" }}
  persistentVolumeClaim: {claimName: {{ include "lathe.claim" . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{- /* Credentials of the object store, of engines and workers. */ -}}
{{- define "lathe.envFrom" -}}
{{- if and (eq .Values.storage.kind "s3") .Values.storage.s3CredentialsSecret }}
envFrom:
  - secretRef: {name: {{ .Values.storage.s3CredentialsSecret }}}
{{- end }}
{{- end }}

{{- /* Volumes of a program: {root, config: suffix of the ConfigMap, tls: Secret, tlsItems?, secrets: keys}. */ -}}
{{- define "lathe.volumes" -}}
- name: config
  configMap: {name: {{ include "lathe.fullname" .root }}-{{ .config }}}
{{- with .tls }}
- name: tls
  secret:
    secretName: {{ . }}
    {{- with $.tlsItems }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
    {{- end }}
{{- end }}
{{- with .secrets }}
- name: secrets
  secret:
    secretName: {{ include "lathe.clusterSecret" $.root }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: tmp
  emptyDir: {}
{{ include "lathe.dataVolume" .root }}
{{- end }}

{{- define "lathe.mounts" -}}
- {name: config, mountPath: /etc/lathe/config, readOnly: true}
{{- if .tls }}
- {name: tls, mountPath: /etc/lathe/tls, readOnly: true}
{{- end }}
{{- if .secrets }}
- {name: secrets, mountPath: /etc/lathe/secrets, readOnly: true}
{{- end }}
# The program makes its folder /run/lathe itself: an emptyDir is everybody's.
- {name: run, mountPath: /run}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /var/lib/lathe{{ if .onlyReads }}, readOnly: true{{ end }}}
{{- end }}

{{- /* Headers for the collector of traces, of engines and gateways. */ -}}
{{- define "lathe.tracingVolumes" -}}
{{- with .Values.tracing.headersSecret }}
- name: tracing
  secret:
    secretName: {{ . }}
    items: [{key: headers, path: headers}]
{{- end }}
{{- end }}

{{- define "lathe.tracingMounts" -}}
{{- if .Values.tracing.headersSecret }}
- {name: tracing, mountPath: /etc/lathe/tracing, readOnly: true}
{{- end }}
{{- end }}

{{- /* Secrets that only engines have. */ -}}
{{- define "lathe.engineVolumes" -}}
- name: store
  secret:
    secretName: {{ required "store.existingSecret: the name of a Secret with the URL of Postgres is missing (or set sqlite.enabled for a trial)" .Values.store.existingSecret }}
    items: [{key: {{ .Values.store.key }}, path: url}]
{{- with .Values.adminKeySecret }}
- name: admin
  secret:
    secretName: {{ . }}
    items: [{key: admin.key, path: admin.key}]
{{- end }}
{{- end }}

{{- define "lathe.engineMounts" -}}
- {name: store, mountPath: /etc/lathe/store, readOnly: true}
{{- if .Values.adminKeySecret }}
- {name: admin, mountPath: /etc/lathe/admin, readOnly: true}
{{- end }}
{{- end }}
