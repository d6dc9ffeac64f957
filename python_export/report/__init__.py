"""The page of a week, for its readers."""
