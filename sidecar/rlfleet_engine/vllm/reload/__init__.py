"""Loads a checkpoint into a running model by vLLM's own loaders, and sees what they read."""
