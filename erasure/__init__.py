"""`lakehouse erase`: a person is erased, from bronze to the published files.

It uses the ingester and the exporter as they are. console/ imports it.
"""
