"""Checks before a pause that a version is complete and matches the base model."""
