"""The exporter: one week of the tables that dbt built becomes files that analysts trust."""
