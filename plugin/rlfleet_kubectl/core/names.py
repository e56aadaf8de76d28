"""Names by which Kubernetes knows what belongs to rlfleet."""

FLEETS = "rlinferencefleets.rlfleet.dev"
"""The resource, also the name of its definition."""
FLEET_LABEL = "rlfleet.dev/fleet"
OPERATOR_PODS = "app.kubernetes.io/part-of=rlfleet,app.kubernetes.io/component=operator"
"""Labels of the operator's Deployments and pods; the chart's nameOverride leaves them alone."""
WORKER_CONTAINERS = ("engine", "sidecar")
