"""What this extension knows of vLLM's own names: nothing outside this package knows one.

uses.py is the table of all of them. What differs between releases is handled here.
"""
