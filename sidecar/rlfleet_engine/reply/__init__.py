"""What goes back to a client: versions, abort markers, errors in one form."""
