"""The Kubernetes objects that a fleet needs, as its spec asks for them. Pure."""
