"""The admin routes, and what stands before all routes: credentials, bounds, problems."""
