"""Finds published versions that are no longer needed, and deletes them if the fleet says so."""
