"""The worker's state: stages, rules, and the journal that survives a restart."""
