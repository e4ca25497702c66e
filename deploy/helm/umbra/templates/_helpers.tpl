{{- define "umbra.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "umbra.labels" -}}
{{ include "umbra.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "umbra.selector" -}}
app.kubernetes.io/name: umbra
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The secret with the database's URL, and the key in it. */ -}}
{{- define "umbra.url" -}}
{{- if .Values.postgres.enabled -}}
name: {{ include "umbra.name" . }}-db-app
key: uri
{{- else -}}
name: {{ required "cluster.urlSecret is missing: the secret with the database's URL" .Values.cluster.urlSecret }}
key: url
{{- end -}}
{{- end }}
