"""The dashboard: a page on 127.0.0.1 that sees and changes fleets with the access of kubectl."""
