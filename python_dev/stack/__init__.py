"""What a laptop needs instead of a platform: a broker, a schema registry, a mail server, all of them up and down."""
