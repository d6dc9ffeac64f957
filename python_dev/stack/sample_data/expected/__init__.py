"""What should become of the sample data, by the business rules in plain Python and not by SQL: the tests' oracle.

python_dev/stack/sample_data/ and the tests import it.
"""
