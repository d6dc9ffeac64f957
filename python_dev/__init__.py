"""What developers of the dbt project use, and production never imports; it comes with a checkout alone."""

COMMANDS = {
    "stack": ("python_dev.commands.stack", "Kafka, schema registry, Spark Thrift and mail servers on this machine."),
    "review": (
        "python_dev.commands.review",
        "Show what a change of the dbt project does to code, contracts, tables and weekly files.",
    ),
    "scaffold": (
        "python_dev.commands.scaffold",
        "Write the models of a new topic, from its registered schema to a weekly CSV file, to be edited.",
    ),
}
"""The module of each sub-command of `lakehouse` that only developers have, and its summary in the list."""
