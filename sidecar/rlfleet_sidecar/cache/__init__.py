"""The worker's copies of versions: prepared, digested, bounded, evicted."""
