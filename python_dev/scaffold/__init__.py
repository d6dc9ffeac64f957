"""The models of a new topic, from its registered schema to a weekly export, as files to edit."""
