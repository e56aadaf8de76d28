"""The worker's own copies of versions: copied, digested, kept within bounds, evicted."""
