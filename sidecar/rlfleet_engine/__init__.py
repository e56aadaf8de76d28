"""rlfleet's code inside vLLM: guard and gate in its API server, the reload in its workers.

It adds no dependency to vLLM's processes: it imports the standard library and rlfleet_contract,
and only ``worker`` imports torch and vLLM.
"""
