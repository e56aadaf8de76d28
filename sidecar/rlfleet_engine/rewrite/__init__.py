"""Translates requests in shapes that vLLM lacks into its own, and the replies back."""
