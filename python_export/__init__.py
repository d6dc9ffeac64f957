"""The exporter: one week of the tables that dbt built becomes files that analysts trust.

weekly_job/, erasure/ and console/ may import it.
Rooms from the top: cli, run.py, report, telling, publishing, files, datasets.
"""
