"""The admin routes, and what all routes share: credentials, limits, problems."""
