"""Messages between a worker's sidecar and the operator: commands, fence, reports, problems."""
