"""What rlfleet adds to vLLM: the guard and gate of its API server, the reload of its workers.

It runs inside vLLM's processes and adds no dependency to them: standard library
and rlfleet_contract, with torch and vLLM themselves only in ``worker``.
"""
