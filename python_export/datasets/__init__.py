"""What is exported of a week: the datasets that dbt declares, whether they are complete, and their rows."""
