"""Jobs that compose the packages below: the command `lakehouse`, the weekly job, erasure."""
