"""What a worker's sidecar and the operator exchange: commands, their fence, reports, problems."""
