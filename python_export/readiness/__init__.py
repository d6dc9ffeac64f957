"""Whether a dataset's week may be published: completeness, issues, personal data, counts."""
