"""Reviews of a change of the dbt project: what it does to SQL, contracts, personal data, tables and weekly files."""
