"""Which version the workers serve, how many change at once, and what stops it. Pure."""
