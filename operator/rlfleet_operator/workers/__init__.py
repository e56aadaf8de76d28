"""I/O towards the sidecars: requests, one connection a pod, and what each said last."""
