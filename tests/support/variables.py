"""Variables that every command needs, all that a site sets, and those that commands set."""

OF_ALL = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "SCHEMA_REGISTRY_URL": "http://127.0.0.1:8081",
    "LAKEHOUSE_WAREHOUSE": "/warehouse",
    "LAKEHOUSE_CATALOG_URI": "jdbc:sqlite:/catalog.db?journal_mode=WAL&busy_timeout=30000",
}

COMPLETE = {**OF_ALL, "LAKEHOUSE_EXPORT_ROOT": "/exports", "LAKEHOUSE_PII_KEY_FILE": "/pii.key"}

# Set for dbt by the commands that start it.
NOT_FOR_PEOPLE = {"LAKEHOUSE_GIT_COMMIT", "LAKEHOUSE_LEASE", "LAKEHOUSE_WEEKS"}
