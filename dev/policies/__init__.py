"""Enforces NetworkPolicies on the development node."""
