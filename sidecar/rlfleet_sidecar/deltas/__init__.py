"""Versions that trainers publish as deltas: read, checked, and made whole checkpoints."""
