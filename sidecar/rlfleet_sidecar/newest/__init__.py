"""Finds the newest complete version that a trainer has published."""
