"""All code that depends on vLLM's names, and on differences between its releases.

uses.py has the table of these names.
"""
