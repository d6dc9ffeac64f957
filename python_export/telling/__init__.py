"""Notifications: announcements, the outbox, mail and webhooks."""
