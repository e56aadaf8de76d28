"""What a rank reads of a version, and what it can show of its memory after. Knows no vLLM."""
