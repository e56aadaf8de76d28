"""The formats of published deltas, parsed and checked. Pure."""
