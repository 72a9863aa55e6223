{{- /* The YAML of --config: what the chart decides, and the values' options. */ -}}

{{- define "lathe.ownedKeys" -}}
engine: [data_dir, run_dir, store, store_file, admin_key_file, grpc_listen, worker_listen, tls_cert, tls_key,
  worker_client_ca, insecure_i_know, worker_secret, worker_secret_file, gateway_secret, gateway_secret_file]
gateway: [engine, engine_ca, engine_cert, engine_key, secret_file, listen, data_dir, tls_cert, tls_key, insecure_i_know]
ranks: [ranks, engine, engine_ca, engine_cert, engine_key, secret_file, group, metrics_listen, insecure_i_know,
  stopped_exit_code]
worker: [engine, engine_ca, engine_cert, engine_key, secret_file, group, rank, world, supervised, threads, insecure_i_know]
up: [model, listen, store, store_file, metrics_listen, insecure_i_know, tls_cert, tls_key, dp, fsdp, tp]
data: [dir, run_dir]
metrics: [engine_listen, gateway_listen, worker_listen]
tracing: [headers_file]
{{- end }}

{{- /* Refuses keys that the chart sets: {config, where}. */ -}}
{{- define "lathe.checkConfig" -}}
{{- range $section, $keys := include "lathe.ownedKeys" . | fromYaml }}
{{- range $key := $keys }}
{{- if hasKey (get $.config $section | default dict) $key }}
{{- $instead := get (dict "worker.threads" "; give ranks.threads" "tracing.headers_file" "; give tracing.headersSecret") (printf "%s.%s" $section $key) }}
{{- fail (printf "%s.%s.%s: the chart sets this option itself%s" $.where $section $key $instead) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The configuration of engines and gateways. */ -}}
{{- define "lathe.chartConfig" -}}
engine:
  data_dir: /var/lib/lathe
  run_dir: /run/lathe
  grpc_listen: 0.0.0.0:8090
  worker_listen: 0.0.0.0:8091
  tls_cert: /etc/lathe/tls/tls.crt
  tls_key: /etc/lathe/tls/tls.key
  worker_client_ca: /etc/lathe/tls/ca.crt
  store_file: /etc/lathe/store/url
  worker_secret_file: /etc/lathe/secrets/worker
  gateway_secret_file: /etc/lathe/secrets/gateway
  {{- if .Values.adminKeySecret }}
  admin_key_file: /etc/lathe/admin/admin.key
  {{- end }}
gateway:
  engine:
    {{- include "lathe.engines" (dict "root" . "port" 8090) | nindent 4 }}
  engine_ca: /etc/lathe/tls/ca.crt
  secret_file: /etc/lathe/secrets/gateway
  listen: 0.0.0.0:8080
  {{- if .Values.gateway.tlsSecret }}
  tls_cert: /etc/lathe/api-tls/tls.crt
  tls_key: /etc/lathe/api-tls/tls.key
  {{- else }}
  # An ingress or proxy ends TLS in front of the Service.
  insecure_i_know: true
  {{- end }}
  data_dir: /var/lib/lathe
  # A readiness probe notices in 4 s, and a Service a moment later.
  drain_delay: 10s
ranks:
  engine:
    {{- include "lathe.engines" (dict "root" . "port" 8091) | nindent 4 }}
  engine_ca: /etc/lathe/tls/ca.crt
  engine_cert: /etc/lathe/tls/tls.crt
  engine_key: /etc/lathe/tls/tls.key
  secret_file: /etc/lathe/secrets/worker
  metrics_listen: 0.0.0.0:9090
data:
  dir: /var/lib/lathe
  run_dir: /run/lathe
metrics:
  engine_listen: 0.0.0.0:9090
  gateway_listen: 0.0.0.0:9090
{{- if .Values.tracing.headersSecret }}
tracing:
  headers_file: /etc/lathe/tracing/headers
{{- end }}
{{- end }}

{{- /* The file for engines and gateways. */ -}}
{{- define "lathe.config" -}}
{{- include "lathe.checkConfig" (dict "config" .Values.config "where" "config") -}}
{{- $chart := include "lathe.chartConfig" . | fromYaml -}}
{{- /* The sections of workers are in the groups' files. */ -}}
{{- omit (mustMergeOverwrite (omit $chart "ranks" "data") (deepCopy .Values.config)) "worker" "ranks" | toYaml }}
{{- end }}

{{- /* What the values say about one group: {root, group}. */ -}}
{{- define "lathe.givenConfig" -}}
{{- $all := omit (deepCopy .root.Values.config) "engine" "gateway" "lora" "up" "metrics" "tracing" -}}
{{- mustMergeOverwrite $all (deepCopy .group.config) | toYaml }}
{{- end }}

{{- /* The file of one group: {root, group}. */ -}}
{{- define "lathe.groupConfig" -}}
{{- include "lathe.checkConfig" (dict "config" .group.config "where" (printf "groups[%s].config" .group.name)) -}}
{{- $chart := pick (include "lathe.chartConfig" .root | fromYaml) "ranks" "data" -}}
{{- $config := mustMergeOverwrite $chart (include "lathe.givenConfig" . | fromYaml) -}}
{{- if eq .group.kind "StatefulSet" }}
{{- $_ := unset $config.ranks "ranks_per_pod" -}}
{{- $_ := set $config.ranks "ranks" (printf "0-%d" (sub (int (include "lathe.world" .)) 1)) -}}
{{- else }}
{{- $_ := set $config.ranks "ranks_per_pod" (int (include "lathe.ranksPerPod" .)) -}}
{{- end }}
{{- if eq .group.kind "JobSet" }}
{{- /* An indexed Job counts a pod that ends with 0 as finished, also after an eviction. */ -}}
{{- $_ := set $config.ranks "stopped_exit_code" 143 -}}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* The file of the one pod of sqlite.enabled. */ -}}
{{- define "lathe.sqliteConfig" -}}
{{- include "lathe.checkConfig" (dict "config" .Values.config "where" "config") -}}
{{- $up := dict "listen" "0.0.0.0:8080" "insecure_i_know" true "metrics_listen" "0.0.0.0:9090" -}}
{{- if .Values.gateway.tlsSecret }}
{{- $up = merge (dict "tls_cert" "/etc/lathe/api-tls/tls.crt" "tls_key" "/etc/lathe/api-tls/tls.key") (omit $up "insecure_i_know") -}}
{{- end }}
{{- $models := list -}}{{- $dp := list -}}{{- $fsdp := list -}}{{- $tp := list -}}
{{- $worker := dict -}}
{{- range include "lathe.groups" . | fromYamlArray }}
{{- include "lathe.checkConfig" (dict "config" .config "where" (printf "groups[%s].config" .name)) -}}
{{- $models = append $models .config.worker.model -}}
{{- $dp = append $dp (int (get .config.worker "dp" | default 1)) -}}
{{- $fsdp = append $fsdp (int (get .config.worker "fsdp" | default 1)) -}}
{{- $tp = append $tp (int (get .config.worker "tp" | default 1)) -}}
{{- $worker = omit .config.worker "model" "dp" "fsdp" "tp" -}}
{{- end }}
{{- if and (gt (len $models) 1) $worker }}
{{- fail "groups: with sqlite.enabled all groups have the same options; put them into config.worker" }}
{{- end }}
{{- $_ := merge $up (dict "model" $models "dp" $dp "fsdp" $fsdp "tp" $tp) -}}
{{- $chart := dict "up" $up "data" (dict "dir" "/var/lib/lathe" "run_dir" "/run/lathe") -}}
{{- if $worker }}{{- $_ := set $chart "worker" $worker }}{{- end }}
{{- $chart = merge $chart (pick (include "lathe.chartConfig" . | fromYaml) "tracing") -}}
{{- mustMergeOverwrite $chart (deepCopy .Values.config) | toYaml }}
{{- end }}
