"""Kubernetes binaries, and an API server with its controllers as processes of this machine."""
