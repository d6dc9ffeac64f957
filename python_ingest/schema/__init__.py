"""What Avro schemas become: one column per field, whatever version wrote it.

landing/ and what stands on it may import it; verify/ may not.
"""
