"""Who is told of what: announcements, the outbox, mail and webhooks."""
