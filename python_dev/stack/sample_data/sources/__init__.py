"""The systems that produce: web shop, payment provider, stores and brokerage."""
