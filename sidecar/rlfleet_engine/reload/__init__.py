"""Reads a version's tensors, and the weights in memory after a load. Knows no vLLM."""
