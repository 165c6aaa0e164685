{{- define "qcs.base" -}}
{{- $name := default .Release.Name .Values.nameOverride -}}
{{- $name | trunc 44 | trimSuffix "-" -}}
{{- end }}

{{- define "qcs.name" -}}
{{ include "qcs.base" . }}-operator
{{- end }}

{{- define "qcs.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "qcs.name" .) }}
{{- end }}

{{- define "qcs.lease" -}}
{{ .Values.leaderElection.leaseName | default (include "qcs.base" .) }}
{{- end }}

{{- /* Never anything that changes with a release: a Deployment's selector is fixed for life. */ -}}
{{- define "qcs.selector" -}}
app.kubernetes.io/name: qwen-cached-serve-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Version and chart are labels of the objects only, not of pods: an upgrade that changes nothing restarts nobody. */ -}}
{{- define "qcs.labels" -}}
{{- $own := dict
      "app.kubernetes.io/component" "operator"
      "app.kubernetes.io/part-of" "qwen-cached-serve"
      "app.kubernetes.io/managed-by" .Release.Service
      "app.kubernetes.io/version" .Chart.AppVersion
      "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge (dict) (include "qcs.selector" . | fromYaml) $own .Values.commonLabels) -}}
{{- end }}

{{- /* metadata of an object: dict "root" . "name" name ["labels" more] ["annotations" more] ["namespace" other] */ -}}
{{- define "qcs.metadata" -}}
name: {{ .name }}
{{- if not .clusterScoped }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- toYaml (merge (dict) (include "qcs.labels" .root | fromYaml) (default (dict) .labels)) | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "qcs.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{- with .Values.image.tag }}{{ $name = printf "%s:%s" $name . }}{{ end -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Environment made of values; only what differs from the operator's own defaults is set. */ -}}
{{- define "qcs.environment" -}}
{{- $env := list -}}
{{- if .Values.watchNamespaces }}{{ $env = append $env (dict "name" "QCS_NAMESPACES" "value" (join "," .Values.watchNamespaces)) }}{{ end -}}
{{- with .Values.engineImages.gpu }}{{ $env = append $env (dict "name" "QCS_ENGINE_IMAGE" "value" .) }}{{ end -}}
{{- with .Values.engineImages.cpu }}{{ $env = append $env (dict "name" "QCS_ENGINE_CPU_IMAGE" "value" .) }}{{ end -}}
{{- if not .Values.leaderElection.enabled }}{{ $env = append $env (dict "name" "QCS_LEADER_ELECTION" "value" "false") }}{{ end -}}
{{- $env = append $env (dict "name" "QCS_LEASE_NAME" "value" (include "qcs.lease" .)) -}}
{{- $env = append $env (dict "name" "QCS_LOG_LEVEL" "value" .Values.log.level) -}}
{{- $env = append $env (dict "name" "QCS_LOG_FORMAT" "value" .Values.log.format) -}}
{{- $env = append $env (dict "name" "QCS_WORKERS" "value" (toString .Values.workers)) -}}
{{- $env = append $env (dict "name" "QCS_RESYNC_SECONDS" "value" (toString .Values.resyncSeconds)) -}}
{{- $env = append $env (dict "name" "QCS_WATCH_BEHIND_SECONDS" "value" (toString .Values.watchBehindSeconds)) -}}
{{- if not .Values.podStatus }}{{ $env = append $env (dict "name" "QCS_POD_STATUS" "value" "false") }}{{ end -}}
{{- if ne (join "," .Values.monitoring.namespaces) "monitoring" }}{{ $env = append $env (dict "name" "QCS_MONITORING_NAMESPACES" "value" (join "," .Values.monitoring.namespaces)) }}{{ end -}}
{{- with .Values.proxy }}
{{- if .http }}{{ $env = append $env (dict "name" "HTTP_PROXY" "value" .http) }}{{ end -}}
{{- if .https }}{{ $env = append $env (dict "name" "HTTPS_PROXY" "value" .https) }}{{ end -}}
{{- if or .http .https }}
{{- /* $(KUBERNETES_SERVICE_HOST): the kubelet puts the API server's address there, which must not go through a proxy. */ -}}
{{- $direct := list "localhost" "127.0.0.1" "::1" "$(KUBERNETES_SERVICE_HOST)" ".svc" ".cluster.local" -}}
{{- if .noProxy }}{{ $direct = append $direct .noProxy }}{{ end -}}
{{- $env = append $env (dict "name" "NO_PROXY" "value" (join "," $direct)) -}}
{{- end -}}
{{- end -}}
{{- if or .Values.customCA.configMap .Values.customCA.secret }}
{{- $env = append $env (dict "name" "SSL_CERT_FILE" "value" (printf "/etc/qwen-cached-serve/ca/%s" .Values.customCA.key)) }}
{{- end -}}
{{- toYaml (concat $env .Values.extraEnv) -}}
{{- end }}
