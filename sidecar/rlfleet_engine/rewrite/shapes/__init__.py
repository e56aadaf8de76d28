"""One module for each shape of request, and the table of routes that have one."""
