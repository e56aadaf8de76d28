{{/* The name of every object. The release's name alone was it before there were overrides. A Service
takes no dot and no leading digit. A name that was changed ends in a hash, so that no two become one. */}}
{{- define "rlfleet.name" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = .Release.Name -}}
{{- if and .Values.nameOverride (not (contains .Values.nameOverride $name)) -}}
{{- $name = printf "%s-%s" $name .Values.nameOverride -}}
{{- end -}}
{{- end -}}
{{- $valid := regexReplaceAll "^([0-9])" $name "rlfleet-${1}" | replace "." "-" -}}
{{- if or (ne $valid $name) (gt (len $name) 50) -}}
{{- $valid = printf "%s-%s" ($valid | trunc 41 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $valid -}}
{{- end -}}

{{- define "rlfleet.serviceAccount" -}}
{{- $made := ternary (include "rlfleet.name" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $made -}}
{{- end -}}

{{- define "rlfleet.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "rlfleet-operator" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Says of an object of a chart around this one that an upgrade of its release needs that chart. */}}
{{- define "rlfleet.origin" -}}
{{- if not .Chart.IsRoot -}}
rlfleet.dev/subchart: "true"
{{- end -}}
{{- end -}}

{{/* Labels of an object, with those of its kind. Ours win: no label of the user's parts a pod from its
Deployment. */}}
{{- define "rlfleet.labelsAnd" -}}
{{- $version := .root.Chart.Version | replace "+" "_" -}}
{{- $ours := include "rlfleet.selector" .root | fromYaml -}}
{{- $_ := set $ours "app.kubernetes.io/component" "operator" -}}
{{- $_ := set $ours "app.kubernetes.io/part-of" "rlfleet" -}}
{{- $_ := set $ours "app.kubernetes.io/version" (.root.Chart.AppVersion | replace "+" "_") -}}
{{- $_ := set $ours "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" .root.Chart.Name $version) -}}
{{- toYaml (merge $ours .labels .root.Values.commonLabels) -}}
{{- end -}}

{{- define "rlfleet.labels" -}}
{{- include "rlfleet.labelsAnd" (dict "root" . "labels" dict) -}}
{{- end -}}

{{/* An image's name, in the registry of all charts if there is one. */}}
{{- define "rlfleet.image" -}}
{{- $registry := .root.Values.global.imageRegistry | default "" | trimSuffix "/" -}}
{{- if $registry -}}
{{- $parts := splitList "/" .name -}}
{{- $first := first $parts -}}
{{- if and (rest $parts) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $parts = rest $parts -}}
{{- end -}}
{{- printf "%s/%s" $registry (join "/" $parts) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{- define "rlfleet.operatorImage" -}}
{{- $name := include "rlfleet.image" (dict "root" . "name" .Values.image.repository) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $name .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Pull secrets as Kubernetes wants them: users of `global` write names. */}}
{{- define "rlfleet.pullSecrets" -}}
{{- $found := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $found = append $found (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- if $found -}}
{{- toYaml (uniq $found) -}}
{{- end -}}
{{- end -}}

{{/* Refuse values that no object can be made of; what a schema can say stands in the schema. */}}
{{- define "rlfleet.check" -}}
{{- range $path := list
  "commonLabels" "crds" "global" "global.imagePullSecrets" "image" "imagePullSecrets" "metrics"
  "metrics.dashboard" "metrics.dashboard.labels" "metrics.podMonitors"
  "metrics.podMonitors.labels" "metrics.rules" "metrics.rules.labels"
  "metrics.rules.noNewVersionSeconds" "metrics.serviceMonitors" "metrics.serviceMonitors.labels"
  "networkPolicy" "networkPolicy.prometheus" "networkPolicy.samplers" "networkPolicy.trainers"
  "operator" "operator.adminPort" "operator.fleetsPort" "operator.logLevel" "operator.metricsPort"
  "operator.pollSeconds" "operator.sidecarConcurrency" "operator.watchSilenceSeconds"
  "podDisruptionBudget" "podLabels" "rbac" "serviceAccount" "serviceAccount.create" "worker"
-}}
{{- $at := $.Values -}}
{{- range splitList "." $path -}}
{{- $at = index $at . -}}
{{- if kindIs "invalid" $at -}}
{{- fail (printf "the value %s is missing: null removed it, or these are the values of an older chart. Leave it out, and use --reset-then-reuse-values instead of --reuse-values, so that values get their defaults" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $missing := list -}}
{{- if not .Values.image.repository -}}{{- $missing = append $missing "image.repository" -}}{{- end -}}
{{- if not .Values.worker.image -}}{{- $missing = append $missing "worker.image" -}}{{- end -}}
{{- if $missing -}}
{{- $v := .Chart.AppVersion -}}
{{- $lines := list
  (printf "%s not set: the images of rlfleet are in no public registry. Build both, then push them or load them into the nodes (kind load docker-image, minikube image load):" (join " and " $missing))
  (printf "  docker build -f Dockerfile.operator -t REGISTRY/operator:%s ." $v)
  (printf "  docker build -f Dockerfile.worker -t REGISTRY/worker:%s ." $v)
  "and name both:"
  (printf "  --set image.repository=REGISTRY/operator --set worker.image=REGISTRY/worker:%s" $v)
-}}
{{- fail (join "\n" $lines) -}}
{{- end -}}
{{- if and .Chart.IsRoot (eq (toString .Values.enabled) "false") -}}
{{- fail "enabled is false, which is for a chart around this one; remove it, or uninstall the release" -}}
{{- end -}}
{{- $issuer := (.Values.operator.fleetsTLS | default dict).issuer -}}
{{- if and $issuer (not $issuer.name) -}}
{{- fail "operator.fleetsTLS.issuer has no name; write {name: ISSUER} or {name: ISSUER, kind: ClusterIssuer}" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitors.enabled .Values.metrics.serviceMonitors.enabled -}}
{{- fail "metrics.podMonitors and metrics.serviceMonitors are both enabled, and Prometheus would scrape each target twice; enable one of them" -}}
{{- end -}}
{{- if eq (int .Values.operator.metricsPort) (int .Values.operator.fleetsPort) -}}
{{- fail (printf "operator.metricsPort and operator.fleetsPort are both %d, and one pod cannot listen twice; change one of them" (int .Values.operator.metricsPort)) -}}
{{- end -}}
{{- end -}}

{{/* The groups of rules/rlfleet.yaml, with the limit of RLFleetNoNewVersion, or without that alert. */}}
{{- define "rlfleet.alerts" -}}
{{- $file := .Files.Get "rules/rlfleet.yaml" | fromYaml -}}
{{- $limit := int64 .Values.metrics.rules.noNewVersionSeconds -}}
{{- range $group := $file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if eq $rule.alert "RLFleetNoNewVersion" -}}
{{- $_ := set $rule "expr" ($rule.expr | replace "> 86400" (printf "> %d" $limit)) -}}
{{- end -}}
{{- if or $limit (ne $rule.alert "RLFleetNoNewVersion") -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- $_ := set $group "rules" $rules -}}
{{- end -}}
{{- toYaml $file -}}
{{- end -}}

{{/* What the operator may do where fleets are. No wildcard, no list of Secrets. */}}
{{- define "rlfleet.rules" -}}
- apiGroups: [rlfleet.dev]
  resources: [rlinferencefleets]
  verbs: [get, list, watch]
- apiGroups: [rlfleet.dev]
  resources: [rlinferencefleets/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
{{- end -}}

{{/* The operator's variables: the settings, then further ones, which must not be settings. None names
the release's namespace: Kustomize moves objects into another, and changes no variable. */}}
{{- define "rlfleet.env" -}}
{{- $settings := dict
  "RLFLEET_WORKER_IMAGE" (include "rlfleet.image" (dict "root" . "name" .Values.worker.image))
  "RLFLEET_NAMESPACES" (join "," .Values.namespaces)
  "RLFLEET_LOG_LEVEL" .Values.operator.logLevel
  "RLFLEET_POLL_SECONDS" .Values.operator.pollSeconds
  "RLFLEET_SIDECAR_CONCURRENCY" .Values.operator.sidecarConcurrency
  "RLFLEET_WATCH_SILENCE_SECONDS" .Values.operator.watchSilenceSeconds
  "RLFLEET_ADMIN_PORT" .Values.operator.adminPort
  "RLFLEET_METRICS_PORT" .Values.operator.metricsPort
  "RLFLEET_FLEETS_PORT" .Values.operator.fleetsPort
  "RLFLEET_FLEETS_TLS_DIR" (ternary "/var/run/rlfleet/tls" "" (not (empty (include "rlfleet.tlsSecret" .))))
  "RLFLEET_LEASE_NAME" (include "rlfleet.name" .)
-}}
{{- range $index, $one := .Values.extraEnv -}}
{{- if hasKey $settings $one.name -}}
{{- $value := ternary "fullnameOverride" "its value" (eq $one.name "RLFLEET_LEASE_NAME") -}}
{{- fail (printf "extraEnv[%d].name: the chart sets %s; set %s instead (helm show values)" $index $one.name $value) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The Secret with the certificate of the fleet API; empty for plain HTTP, and without the API. */}}
{{- define "rlfleet.tlsSecret" -}}
{{- if .Values.operator.fleetsPort -}}
{{- $tls := .Values.operator.fleetsTLS | default dict -}}
{{- $tls.secretName | default (ternary (printf "%s-tls" (include "rlfleet.name" .)) "" (not (empty $tls.issuer))) -}}
{{- end -}}
{{- end -}}

{{/* Labels of a role for users, which Kubernetes adds to its own roles. */}}
{{- define "rlfleet.roleLabels" -}}
{{- $labels := include "rlfleet.labels" .root | fromYaml -}}
{{- if .root.Values.rbac.aggregate -}}
{{- range .to -}}
{{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" -}}
{{- end -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{/* One rule of a NetworkPolicy; without peers there is none, because Kubernetes would let in all. */}}
{{- define "rlfleet.from" -}}
{{- if .peers -}}
- from: {{- toYaml .peers | nindent 4 }}
  ports:
    - {port: {{ .port }}, protocol: TCP}
{{- end -}}
{{- end -}}
