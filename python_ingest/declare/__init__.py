"""What a dbt source declares of a topic, its table and the persons in it."""
