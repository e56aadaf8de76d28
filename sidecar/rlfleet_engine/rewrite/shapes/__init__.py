"""One module per shape of request, and the table of routes with a shape."""
