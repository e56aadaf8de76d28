"""What is drawn from the code: the reference pages, the CRD, and figures for architecture.md."""
