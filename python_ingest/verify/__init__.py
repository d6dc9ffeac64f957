"""The independent check: compares a plain consumer's records with the table, without code of landing/ and bronze/."""
