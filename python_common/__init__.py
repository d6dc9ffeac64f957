"""What all packages share: errors, processes, weeks, configuration, catalog, locks, Spark."""
