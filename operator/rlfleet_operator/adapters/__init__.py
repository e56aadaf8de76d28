"""I/O towards Kubernetes and the sidecars; decides nothing."""
