"""Which requests reach vLLM: network guard, gate, deadline, held requests."""
