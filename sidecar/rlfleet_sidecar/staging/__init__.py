"""One pass over a version's bytes: copied into a private draft, digested and looked at."""
