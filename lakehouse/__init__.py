"""The ground: settings, connections, catalog, locks, weeks, errors, keys of properties."""
