"""The demo: from nothing to a weight change that you can watch."""
