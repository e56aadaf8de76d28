"""A simulated fleet that shares a version: the real decisions, in simulated time."""
