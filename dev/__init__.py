"""Tools of the repository: make calls them."""
