"""Who is told of what: announcements, the outbox, mail and webhooks.

report/ and what stands above it may import it.
"""
