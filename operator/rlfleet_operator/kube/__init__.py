"""I/O towards the API server: client, pods, Lease, and the actions of a plan."""
