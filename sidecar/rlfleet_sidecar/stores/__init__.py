"""Versions in object stores, read by obstore: S3, Google Cloud Storage, HTTP servers."""
