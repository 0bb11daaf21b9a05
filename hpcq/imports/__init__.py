"""Results that other programs measured, read from their files: values, each checked and with its place.

a CSV of values, one of facts    table.py    ->  Source(values)  --values.py-->  results with all their metrics
"""
