"""What changes rows that have landed: dead letters that can be decoded now, rows of a person who is erased."""
