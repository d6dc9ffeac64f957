"""The ingester and what it is measured against, a process each."""
