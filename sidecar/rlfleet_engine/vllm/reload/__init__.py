"""Loads a checkpoint into a running model by vLLM's own loaders, and records what they read."""
