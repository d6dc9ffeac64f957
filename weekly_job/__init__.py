"""`lakehouse weekly`: the one command that a scheduler calls, from Kafka to published files.

It uses the ingester and the exporter as they are. console/ imports it.
"""
