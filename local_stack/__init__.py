"""What a laptop needs in place of a platform: a broker, a schema registry, a mail server, all of them up and down."""
