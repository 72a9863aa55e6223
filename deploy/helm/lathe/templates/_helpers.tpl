{{- define "lathe.fullname" -}}
{{- if contains "lathe" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-lathe" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lathe.selector" -}}
app.kubernetes.io/name: lathe
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lathe.labels" -}}
{{ include "lathe.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* metadata of an object: {root, component, suffix?} */ -}}
{{- define "lathe.metadata" -}}
name: {{ include "lathe.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "lathe.labels" . | nindent 2 }}
{{- end }}

{{- /* an image's address: {root, name} */ -}}
{{- define "lathe.image" -}}
{{- $digest := get .root.Values.image.digests .name -}}
{{ .root.Values.image.registry }}/{{ .name }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "lathe.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "lathe.fullname" .) }}
{{- end }}

{{- /* Gateways have an identity of their own, because they are what the world reaches. */ -}}
{{- define "lathe.gatewayAccount" -}}
{{ .Values.gateway.serviceAccount.name | default (printf "%s-gateway" (include "lathe.fullname" .)) }}
{{- end }}

{{- define "lathe.engineService" -}}
{{ include "lathe.fullname" . }}-engine
{{- end }}

{{- /* YAML list of the engines' addresses: {root, port}. Each engine has a name of its own, because a client has to
       find out which one leads. */ -}}
{{- define "lathe.engines" -}}
{{- $service := include "lathe.engineService" .root -}}
{{- range $index := until (int .root.Values.engine.replicas) }}
- {{ $service }}-{{ $index }}.{{ $service }}.{{ $.root.Release.Namespace }}.svc:{{ $.port }}
{{- end }}
{{- end }}

{{- define "lathe.clusterSecret" -}}
{{ .Values.clusterSecret | default (printf "%s-cluster" (include "lathe.fullname" .)) }}
{{- end }}

{{- define "lathe.engineTls" -}}
{{ .Values.tls.engineSecret | default (printf "%s-engine-tls" (include "lathe.fullname" .)) }}
{{- end }}

{{- define "lathe.workerTls" -}}
{{ .Values.tls.workerSecret | default (printf "%s-worker-tls" (include "lathe.fullname" .)) }}
{{- end }}

{{- define "lathe.claim" -}}
{{ .Values.storage.pvc.existingClaim | default (printf "%s-data" (include "lathe.fullname" .)) }}
{{- end }}

{{- /* Number of ranks of a group: {group}. */ -}}
{{- define "lathe.world" -}}
{{- $worker := dig "config" "worker" dict .group -}}
{{ mul (int (get $worker "dp" | default 1)) (int (get $worker "fsdp" | default 1)) (int (get $worker "tp" | default 1)) }}
{{- end }}

{{- define "lathe.ranksPerPod" -}}
{{ int (dig "config" "ranks" "ranks_per_pod" 1 .group) }}
{{- end }}

{{- define "lathe.podsPerGroup" -}}
{{- $world := int (include "lathe.world" .) -}}
{{- $ranks := int (include "lathe.ranksPerPod" .) -}}
{{- if mod $world $ranks }}
{{- fail (printf "groups: %s has %d ranks (dp x fsdp x tp), which ranks.ranks_per_pod %d does not divide" .group.name $world $ranks) }}
{{- end -}}
{{ div $world $ranks }}
{{- end }}

{{- /* YAML list of the groups, each with what groupDefaults adds. A map that a group gives replaces the default's. */ -}}
{{- define "lathe.groups" -}}
{{- $groups := list -}}
{{- range $given := .Values.groups }}
{{- $group := deepCopy $given -}}
{{- range $key, $value := $.Values.groupDefaults }}
{{- if not (hasKey $group $key) }}{{ $_ := set $group $key $value }}{{ end }}
{{- end }}
{{- $groups = append $groups $group -}}
{{- end }}
{{- toYaml $groups }}
{{- end }}

{{- /* Refuses a name that its controller would make too long: {group: its name, kind, name, longest}. */ -}}
{{- define "lathe.checkName" -}}
{{- if gt (len .name) (int .longest) }}
{{- fail (printf "groups: %s: the %s %s would have %d characters, at most %d are possible, because its controller adds some; shorten groups[].name or the name of the release" .group .kind .name (len .name) (int .longest)) }}
{{- end }}
{{- end }}

{{- /* Names of a group's objects: {root, group, pods, name: of its StatefulSet, LeaderWorkerSet or JobSet}. */ -}}
{{- define "lathe.checkGroupNames" -}}
{{- /* A label of 63 characters holds the name of a StatefulSet, a dash and a hash of ten. */ -}}
{{- $longest := 52 }}
{{- $last := sub (max (int .group.replicas) 1) 1 | toString | len }}
{{- if eq .group.kind "LeaderWorkerSet" }}
{{- /* The pods of each group are a StatefulSet with the group's number. */ -}}
{{- $longest = sub $longest (add 1 $last) }}
{{- else if eq .group.kind "JobSet" }}
{{- /* A pod is called NAME-ranks-JOB-INDEX-xxxxx and has 63 characters. */ -}}
{{- $longest = sub 63 (add (len "-ranks-") $last 1 (sub .pods 1 | toString | len) 6) }}
{{- end }}
{{- include "lathe.checkName" (dict "group" .group.name "kind" .group.kind "name" .name "longest" $longest) }}
{{- if .group.schedule }}
{{- /* A CronJob adds eleven characters to the names of its Jobs, which have 63. */ -}}
{{- $cron := printf "%s-group-%s-start" (include "lathe.fullname" .root) .group.name }}
{{- include "lathe.checkName" (dict "group" .group.name "kind" "CronJob" "name" $cron "longest" 52) }}
{{- end }}
{{- end }}
