"""Settings from the environment, limits of time, and the options that connections are made with."""
