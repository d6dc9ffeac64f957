"""The command `lakehouse`, composed of the commands of the rooms below.

The top floor: nothing imports it.
"""
