"""A simulated fleet that executes plans without a cluster: previews, tests, examples. Pure."""
