"""What the ingester asks of Kafka and the registry: ends of topics, single records, schemas, the frame of a message.

The ingester's ground, beside topics.py: every room of it may import this one.
"""
