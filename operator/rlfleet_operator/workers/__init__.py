"""I/O towards the sidecars: requests, one connection per pod, and its last report."""
