"""The dbt project as Python sees it: its manifest, its runs, and the proof that it masks personal data."""
