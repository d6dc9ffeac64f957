"""Maintenance, status, replay and erasure of bronze tables."""
