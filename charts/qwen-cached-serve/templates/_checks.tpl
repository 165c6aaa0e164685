{{- /*
What a schema cannot say, or not in words: values of other charts and former releases that people bring along, values that
contradict each other, and what the cluster lacks. All problems at once, each with the remedy. Included by the Deployment,
which is in every release.
*/ -}}
{{- define "qcs.check" -}}
{{- $problems := concat (include "qcs.check.unknown" . | fromJsonArray) (include "qcs.check.contradictions" . | fromJsonArray) (include "qcs.check.environment" . | fromJsonArray) (include "qcs.check.cluster" . | fromJsonArray) -}}
{{- if $problems }}
{{- fail (printf "\n\nThese values cannot be used:\n - %s\n" (join "\n - " $problems)) }}
{{- end }}
{{- end }}

{{- /* Names that this chart does not have (any more): values.schema.json lets exactly these pass, so that they get a sentence. */ -}}
{{- define "qcs.check.unknown" -}}
{{- $remedies := dict
  "replicaCount" "is called replicas here"
  "installCRDs" "is not a value of this chart: the CustomResourceDefinition is in the chart qwen-cached-serve-crds; install that one first"
  "crds" "is not a value of this chart: the CustomResourceDefinition is in the chart qwen-cached-serve-crds; install that one first"
  "watchNamespace" "is called watchNamespaces here and is a list"
  "namespaces" "is called watchNamespaces here"
  "env" "is called extraEnv here"
  "args" "is not a value of this chart: every flag of the operator has an environment variable QCS_…; set it in extraEnv"
  "extraArgs" "is not a value of this chart: every flag of the operator has an environment variable QCS_…; set it in extraEnv"
  "logLevel" "is called log.level here"
  "leaderElect" "is called leaderElection.enabled here"
  "fullnameOverride" "is not a value of this chart: nameOverride replaces the part before -operator"
  "containerSecurityContext" "is called securityContext here (that of the pod is podSecurityContext)"
  "metrics" "is not a value of this chart: metricsService is the Service, monitoring has ServiceMonitor and PodMonitor"
  "serviceMonitor" "is called monitoring.serviceMonitor here"
  "podMonitor" "is called monitoring.podMonitor here (of the served pods: monitoring.servedPods)"
  "prometheusRule" "is called monitoring.prometheusRule here"
  "dashboards" "is called monitoring.dashboards here"
  "webhook" "is not a value of this chart: the operator has no webhook; the CustomResourceDefinition holds all rules"
-}}
{{- $found := list -}}
{{- range $name, $remedy := $remedies -}}
{{- if hasKey $.Values $name }}{{ $found = append $found (printf "%s %s." $name $remedy) }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "qcs.check.contradictions" -}}
{{- $v := .Values -}}
{{- $found := list -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "qcs.base" .)) -}}
{{- $found = append $found (printf "the release's name %s cannot begin the name of a Service: small letters, digits and - only, a letter first. Set nameOverride, or name the release otherwise." .Release.Name) -}}
{{- end -}}
{{- if and (gt (int $v.replicas) 1) (not $v.leaderElection.enabled) -}}
{{- $found = append $found (printf "replicas: %d with leaderElection.enabled: false: all of them would write at once. Set replicas to 1, or leaderElection.enabled to true." (int $v.replicas)) -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- $found = append $found "serviceAccount.create: false without serviceAccount.name: the namespace's default account would get the operator's permissions. Name the account to use." -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) $v.serviceAccount.annotations -}}
{{- $found = append $found "serviceAccount.annotations with serviceAccount.create: false: this chart does not write that account. Annotate it where it is made, or drop the annotations." -}}
{{- end -}}
{{- if and $v.podDisruptionBudget.enabled (has (toString $v.podDisruptionBudget.maxUnavailable) (list "0" "0%")) -}}
{{- $found = append $found "podDisruptionBudget.maxUnavailable: 0 would block every drain of a node. Give 1 or more, or set podDisruptionBudget.enabled to false." -}}
{{- end -}}
{{- if and $v.customCA.configMap $v.customCA.secret -}}
{{- $found = append $found "customCA.configMap and customCA.secret: only one bundle can be used. Drop one of them." -}}
{{- end -}}
{{- with $v.monitoring -}}
{{- if and .serviceMonitor.enabled .podMonitor.enabled -}}
{{- $found = append $found "monitoring.serviceMonitor and monitoring.podMonitor are both enabled: every operator pod would be scraped twice and counted twice. Enable one of them." -}}
{{- end -}}
{{- if and .serviceMonitor.enabled (not $v.metricsService.enabled) -}}
{{- $found = append $found "monitoring.serviceMonitor.enabled needs the Service it selects. Set metricsService.enabled to true, or use monitoring.podMonitor." -}}
{{- end -}}
{{- $known := list -}}
{{- range ($.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range .rules }}{{ if .alert }}{{ $known = append $known .alert }}{{ end }}{{ end -}}
{{- end -}}
{{- range .prometheusRule.disabledAlerts -}}
{{- if not (has . $known) -}}
{{- $found = append $found (printf "monitoring.prometheusRule.disabledAlerts: there is no alert %s. There are %s." . (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .prometheusRule.alertLabels "severity" -}}
{{- $found = append $found "monitoring.prometheusRule.alertLabels.severity would be the same for every alert. Set monitoring.prometheusRule.severities.page and .ticket." -}}
{{- end -}}
{{- end -}}
{{- range $where := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := get $v $where -}}
{{- if has $label (list "app.kubernetes.io/name" "app.kubernetes.io/instance") -}}
{{- $found = append $found (printf "%s: %s selects the operator's pods and cannot be set. Drop it." $where $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $index, $constraint := $v.topologySpreadConstraints -}}
{{- range $field := list "maxSkew" "topologyKey" "whenUnsatisfiable" -}}
{{- if not (hasKey $constraint $field) -}}
{{- $found = append $found (printf "topologySpreadConstraints[%d] has no %s, which Kubernetes asks for. Add it." $index $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "qcs.check.environment" -}}
{{- $instead := dict
  "QCS_NAMESPACES" "watchNamespaces"
  "QCS_ENGINE_IMAGE" "engineImages.gpu"
  "QCS_ENGINE_CPU_IMAGE" "engineImages.cpu"
  "QCS_LEADER_ELECTION" "leaderElection.enabled"
  "QCS_LEASE_NAME" "leaderElection.leaseName"
  "QCS_LOG_LEVEL" "log.level"
  "QCS_LOG_FORMAT" "log.format"
  "QCS_WORKERS" "workers"
  "QCS_RESYNC_SECONDS" "resyncSeconds"
  "QCS_WATCH_BEHIND_SECONDS" "watchBehindSeconds"
  "QCS_POD_STATUS" "podStatus"
  "QCS_MONITORING_NAMESPACES" "monitoring.namespaces"
  "HTTP_PROXY" "proxy.http"
  "HTTPS_PROXY" "proxy.https"
  "NO_PROXY" "proxy.noProxy"
  "SSL_CERT_FILE" "customCA"
-}}
{{- $fixed := list "QCS_HEALTH_PORT" "QCS_METRICS_PORT" "QCS_LEASE_NAMESPACE" "QCS_IDENTITY" "QCS_KUBECONFIG" "QCS_CONTEXT" -}}
{{- $found := list -}}
{{- $seen := list -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $instead .name -}}
{{- $found = append $found (printf "extraEnv: %s is set by the value %s. Use that." .name (get $instead .name)) -}}
{{- else if has .name $fixed -}}
{{- $found = append $found (printf "extraEnv: %s would break what this chart makes (ports, permissions, credentials). Drop it." .name) -}}
{{- else if has .name $seen -}}
{{- $found = append $found (printf "extraEnv: %s is there twice. Keep one." .name) -}}
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "qcs.check.cluster" -}}
{{- $found := list -}}
{{- $m := .Values.monitoring -}}
{{- if not $m.assumeInstalled -}}
{{- $wanted := dict "serviceMonitor" "ServiceMonitor" "podMonitor" "PodMonitor" "servedPods" "PodMonitor" "prometheusRule" "PrometheusRule" -}}
{{- range $value, $kind := $wanted -}}
{{- if and (get $m $value).enabled (not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) -}}
{{- $found = append $found (printf "monitoring.%s.enabled: this cluster does not serve monitoring.coreos.com/v1 %s. Install the Prometheus operator's CRDs first, or set it to false. When rendering without a cluster, give --api-versions monitoring.coreos.com/v1/%s, or set monitoring.assumeInstalled to true." $value $kind $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}
