"""What users see of a fleet: its fields by name, a verdict, what to do, and the page.

The kubectl plugin and the operator serve the same page from it; it imports neither.
"""
