"""Decisions and texts, as pure functions of the objects that kubectl returned."""
