"""Decisions, as pure functions of what is observed: no I/O, clock, log or await."""
