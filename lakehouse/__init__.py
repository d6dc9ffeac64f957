"""The ground: settings, connections, catalog, locks, weeks, errors, keys of properties.

Every package may import it; it imports none.
"""
