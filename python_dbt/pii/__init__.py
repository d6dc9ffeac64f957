"""Proves that every personal column has a class and that none leaves the restricted layers unmasked."""
