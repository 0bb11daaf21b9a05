"""Results that other programs measured, read from their files: values, each checked and with its place.

a CSV of values, one of facts            table.py                          ->  Source(values)
ReFrame, JUBE, SuperBench, perfSONAR     reframe.py, jube.py, ... by others.py
outputs of described kernels             logs.py, by hpcq/described
Source(values)  --values.py-->  results with all their metrics
"""
