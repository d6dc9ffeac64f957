"""What a review sees of planted changes, and how fast it compares tables, against others."""
