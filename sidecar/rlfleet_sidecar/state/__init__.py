"""What the worker knows of itself: stages, rules, and the journal that survives a restart."""
