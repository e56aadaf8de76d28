"""Pieces of versions between workers: served, received, and checked one by one."""
