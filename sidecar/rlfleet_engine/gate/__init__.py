"""Which requests reach vLLM: the network guard, the gate, its deadline, and who waits there."""
