"""What the ingester, the export and the local stack share: settings, errors, sessions, the week rule, the command line."""
