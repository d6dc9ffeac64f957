"""Notifications of published and withheld versions: messages, outbox, channels, report page."""
