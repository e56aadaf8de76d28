"""A one-node Kubernetes cluster of this machine's own processes: a kubelet and its containers."""
