"""What ingester, export and local stack share: settings, errors, sessions, the week rule, the command line."""
