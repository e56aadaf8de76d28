{{- define "rlfleet.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "rlfleet.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "rlfleet.name" .) -}}
{{- end -}}

{{- define "rlfleet.selector" -}}
app.kubernetes.io/name: rlfleet-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rlfleet.labels" -}}
{{ include "rlfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
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
