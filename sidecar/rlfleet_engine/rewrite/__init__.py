"""Requests in shapes that vLLM does not have, put into its own, and their replies put back."""
