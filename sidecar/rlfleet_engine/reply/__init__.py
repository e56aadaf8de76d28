"""Replies to clients: version headers, abort markers, errors in vLLM's form."""
