"""`kubectl rlf`: shows fleets and changes their spec, with the access of kubectl.

It must stay one small file: `core` decides and renders, `commands` run kubectl.
"""

__version__ = "0.2.0"
