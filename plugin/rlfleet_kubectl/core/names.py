"""Names by which Kubernetes knows what belongs to rlfleet."""

FLEETS = "rlinferencefleets.rlfleet.dev"
"""The resource, also the name of its definition."""
FLEET_LABEL = "rlfleet.dev/fleet"
OPERATOR_PODS = "app.kubernetes.io/name=rlfleet-operator"
"""The label of the operator's Deployments and pods."""
