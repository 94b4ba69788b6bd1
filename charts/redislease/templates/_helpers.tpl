{{- define "redislease.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The beginning of the names of all objects. It leaves room for suffixes such as "-operator". */}}
{{- define "redislease.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "redislease.operatorName" -}}
{{- include "redislease.fullname" . }}-operator
{{- end -}}

{{- define "redislease.serviceAccountName" -}}
{{- default (include "redislease.operatorName" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "redislease.selectorLabels" -}}
app.kubernetes.io/name: {{ include "redislease.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Labels of all objects, except those that select pods. */}}
{{- define "redislease.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: redislease
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "redislease.labels" -}}
{{ include "redislease.selectorLabels" . }}
{{ include "redislease.commonLabels" . }}
{{- end -}}

{{/* The labels of an object with more of its own, from a list with the root and these. A key must not be there twice. */}}
{{- define "redislease.labelsWith" -}}
{{- mergeOverwrite (include "redislease.labels" (index . 0) | fromYaml) (default dict (index . 1)) | toYaml -}}
{{- end -}}

{{/* A ServiceMonitor or PodMonitor, from a dict with root, kind, endpoints (the name of their field) and values. */}}
{{- define "redislease.monitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  name: {{ include "redislease.operatorName" .root }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "redislease.labelsWith" (list .root .values.additionalLabels) | nindent 4 }}
spec:
  {{ .endpoints }}:
    - port: http
      path: /metrics
      {{- with .values.interval }}
      interval: {{ . }}
      {{- end }}
      {{- with .values.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
  namespaceSelector:
    matchNames: [{{ .root.Release.Namespace | quote }}]
  selector:
    matchLabels: {{- include "redislease.selectorLabels" .root | nindent 6 }}
{{- end -}}

{{/* An image reference, from a dict with repository, tag and digest. */}}
{{- define "redislease.image" -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository .tag -}}
{{- end -}}
{{- end -}}

{{/* At most 52 characters: the StatefulSet controller appends a hash, and uses the result as the value of a label. */}}
{{- define "redislease.devRedisName" -}}
{{- include "redislease.fullname" . | trunc 42 | trimSuffix "-" }}-dev-redis
{{- end -}}

{{/* All quorums as a YAML object with the field `quorums`: those of the values, and the one on the Redis pods for trials. */}}
{{- define "redislease.quorums" -}}
{{- $quorums := .Values.quorums -}}
{{- if .Values.devRedis.enabled -}}
{{- $name := include "redislease.devRedisName" . -}}
{{- $nodes := list -}}
{{- range $index := until 3 -}}
{{- $address := printf "%s-%d.%s.%s.svc:6379" $name $index $name $.Release.Namespace -}}
{{- $nodes = append $nodes (dict "name" (printf "dev-%d" $index) "address" $address) -}}
{{- end -}}
{{- $quorums = append $quorums (dict "name" "default" "nodes" $nodes "maxLeaseDuration" .Values.devRedis.maxLeaseDuration) -}}
{{- end -}}
{{- dict "quorums" $quorums | toYaml -}}
{{- end -}}

{{/* What the schema of the values cannot check, because it concerns several values. */}}
{{- define "redislease.validate" -}}
{{- $fullname := include "redislease.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "no name of a Service can begin with %q: set fullnameOverride to lower case letters, digits and \"-\", with a letter first." $fullname) -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is required if serviceAccount.create is false: name the ServiceAccount of the operator." -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor are both enabled, so Prometheus would count everything twice: enable one of them." -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor needs metrics.service.enabled: enable the Service, or use metrics.podMonitor." -}}
{{- end -}}
{{- $names := dict -}}
{{- range (include "redislease.quorums" . | fromYaml).quorums -}}
{{- if hasKey $names .name -}}
{{- if and $.Values.devRedis.enabled (eq .name "default") -}}
{{- fail "devRedis.enabled creates the quorum \"default\", and quorums has an entry with this name: rename the entry, or disable devRedis." -}}
{{- end -}}
{{- fail (printf "quorums has two entries with the name %q: each needs its own name." .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- if and (eq (len .nodes) 1) (not .allowSingleNode) -}}
{{- fail (printf "quorum %q has one node, which tolerates no failure: use three nodes, or set allowSingleNode: true for tests." .name) -}}
{{- end -}}
{{- $quorum := .name -}}
{{- $nodes := dict -}}
{{- $addresses := dict -}}
{{- range .nodes -}}
{{- if hasKey $nodes .name -}}
{{- fail (printf "quorum %q has two nodes with the name %q: each needs its own name." $quorum .name) -}}
{{- end -}}
{{- if hasKey $addresses .address -}}
{{- fail (printf "quorum %q has two nodes with the address %q: two nodes on one server fail together." $quorum .address) -}}
{{- end -}}
{{- $_ := set $nodes .name true -}}
{{- $_ := set $addresses .address true -}}
{{- end -}}
{{- $tls := default dict .tls -}}
{{- range $field, $secret := dict "existingSecret" .existingSecret "tls.existingSecret" $tls.existingSecret -}}
{{- if and $secret $.Values.rbac.create $.Values.rbac.secretNames (not (has $secret $.Values.rbac.secretNames)) -}}
{{- fail (printf "quorum %q has %s: %s, which rbac.secretNames does not allow the operator to read: add it there." $quorum $field $secret) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
