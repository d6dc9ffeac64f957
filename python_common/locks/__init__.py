"""One run at a time: a lease among machines, a lock among processes."""
