"""From offsets to committed rows, exactly once: plan, read, decode, commit."""
