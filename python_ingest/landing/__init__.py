"""From offsets to committed rows, exactly once: plan, read, decode, commit.

repair/, upkeep/, cli/, erasure/ and the weekly job may import it; verify/ may not.
"""
