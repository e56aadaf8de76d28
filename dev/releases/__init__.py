"""Releases of vLLM: what rlfleet uses of each, and the suites against each."""
