{{- /* Pods of worker groups. */ -}}

{{- define "lathe.groupMounts" -}}
- {name: shm, mountPath: /dev/shm}
{{- if or .models.existingClaim .models.image }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- end }}

{{- /* Logs of the ranks. All groups mount one data volume, and their files have the same names. */ -}}
{{- define "lathe.logsMount" -}}
- {name: logs, mountPath: /var/lib/lathe/logs}
{{- end }}

{{- define "lathe.logsVolume" -}}
- name: logs
  emptyDir: {sizeLimit: 2Gi}
{{- end }}

{{- define "lathe.groupVolumes" -}}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .sharedMemory }}}
{{- if .models.existingClaim }}
- name: models
  persistentVolumeClaim: {claimName: {{ .models.existingClaim }}, readOnly: true}
{{- else if .models.image }}
- name: models
  image: {reference: {{ .models.image }}}
{{- end }}
{{- end }}

{{- /* Name of the Lathe group that a pod belongs to. The controllers tell a pod only its number. */ -}}
{{- define "lathe.groupEnv" -}}
{{- if eq .kind "StatefulSet" }}
- name: LATHE_RANKS__GROUP
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- else }}
- name: GROUP_INDEX
  valueFrom:
    fieldRef:
      {{- if eq .kind "LeaderWorkerSet" }}
      fieldPath: metadata.labels['leaderworkerset.sigs.k8s.io/group-index']
      {{- else }}
      fieldPath: metadata.labels['jobset.sigs.k8s.io/job-index']
      {{- end }}
- name: LATHE_RANKS__GROUP
  value: {{ .name }}-$(GROUP_INDEX)
{{- end }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata and spec of a pod template: {root, group}. */ -}}
{{- define "lathe.groupPod" -}}
{{- $root := .root -}}
{{- $self := dict "root" .root "group" .group "component" "worker" "config" (include "lathe.groupConfig" .) -}}
{{- $volumes := dict "root" .root "config" (printf "group-%s" .group.name) "tls" (include "lathe.workerTls" .root) "secrets" (list "worker") -}}
metadata:
  {{- include "lathe.podMetadata" $self | nindent 2 }}
spec:
  {{- include "lathe.podSecurity" .root | nindent 2 }}
  {{- if eq .group.kind "JobSet" }}
  # `lathe ranks` starts its ranks again by itself. The pod ends only after a signal, with 143,
  # or with 78 for bad options.
  restartPolicy: Never
  {{- end }}
  # At SIGTERM the ranks write snapshots of their models.
  terminationGracePeriodSeconds: {{ .group.terminationGracePeriodSeconds }}
  {{- with .group.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: worker
      image: {{ include "lathe.image" (dict "root" .root "name" .group.image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [ranks, --config, /etc/lathe/config/lathe.yaml]
      env:
        {{- include "lathe.groupEnv" .group | nindent 8 }}
      {{- include "lathe.envFrom" .root | nindent 6 }}
      ports:
        - {name: metrics, containerPort: 9090}
      # Started: the base model is loaded. The page is that of the pod's first rank.
      startupProbe:
        httpGet: {path: /startupz, port: metrics}
        periodSeconds: 2
        failureThreshold: 1800
      # `lathe ranks` and the engine replace ranks that hang; this probe is
      # for a pod in which nothing starts any more.
      livenessProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 60
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
      {{- include "lathe.containerSecurity" .root | nindent 6 }}
      resources:
        {{- toYaml .group.resources | nindent 8 }}
      volumeMounts:
        {{- include "lathe.mounts" $volumes | nindent 8 }}
        {{- include "lathe.logsMount" . | nindent 8 }}
        {{- include "lathe.groupMounts" .group | nindent 8 }}
  volumes:
    {{- include "lathe.volumes" $volumes | nindent 4 }}
    {{- include "lathe.logsVolume" . | nindent 4 }}
    {{- include "lathe.groupVolumes" .group | nindent 4 }}
{{- end }}

{{- /* spec of a JobSet: {group, pods, pod: the pod template}. */ -}}
{{- define "lathe.jobSetSpec" -}}
network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
failurePolicy:
  maxRestarts: 20
  restartStrategy: BlockingRecreate
  rules:
    # A configuration that was refused is refused again.
    - {name: badConfiguration, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}
replicatedJobs:
  - name: ranks
    replicas: {{ .group.replicas }}
    template:
      spec:
        completionMode: Indexed
        parallelism: {{ .pods }}
        completions: {{ .pods }}
        backoffLimit: 0
        podFailurePolicy:
          rules:
            - action: FailJob
              onExitCodes: {containerName: worker, operator: In, values: [78]}
            # ranks.stopped_exit_code: a pod that was stopped in order is started again.
            - action: Ignore
              onExitCodes: {containerName: worker, operator: In, values: [143]}
            - action: Ignore
              onPodConditions: [{type: DisruptionTarget, status: "True"}]
        template:
          {{- .pod | nindent 10 }}
{{- end }}
