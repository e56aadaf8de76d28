"""Requests in shapes that vLLM lacks, translated into its own, and their replies back."""
