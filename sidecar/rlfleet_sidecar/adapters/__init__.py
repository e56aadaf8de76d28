"""Adapters: small weights beside the model's own, each under a name that samplers ask for."""
