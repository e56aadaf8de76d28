"""Which version the workers shall serve, how many may change at once, and what stops it. Pure."""
