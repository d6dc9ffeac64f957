"""What the ingester asks of Kafka and the registry: ends of topics, single records, schemas, the frame of a message."""
