"""Network guard and gate: which requests reach vLLM, and which wait."""
