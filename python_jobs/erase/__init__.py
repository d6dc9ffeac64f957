"""`lakehouse erase`: a person is erased, from bronze to the published files."""
