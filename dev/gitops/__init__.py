"""What GitOps tools make of a fleet: kstatus, and Argo CD's Lua."""
