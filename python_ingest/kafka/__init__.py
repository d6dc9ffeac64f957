"""The services the ingester reads: broker, single records, schema registry.

Every room of the ingester may import it.
"""
