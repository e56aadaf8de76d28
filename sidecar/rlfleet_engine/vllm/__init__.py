"""What this extension knows of vLLM's own names where it loads and processes weights.

Only this package imports vLLM's loaders, so that another release is handled in one place.
"""
