"""Who is told what, and when: the outbox, mail and webhooks.

report/, run.py and the commands may import it.
"""
