"""The commands: each asks kubectl, lets `core` decide, and prints."""
