"""Settings from the environment, and the options that connections are made with."""
