"""The Kubernetes objects of a fleet, as its spec declares them. Pure."""
