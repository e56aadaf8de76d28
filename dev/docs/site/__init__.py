"""The pages as a site with search: `make docs` writes it to build/docs, without network access."""
