"""What a laptop needs in place of a platform: a broker, a schema registry, a mail server, and all of them up and down.

console/, the tests and the benchmarks may import it; what runs in production may not.
"""
