"""Further queries beyond query.py: one result, one run, evidence, exports, doctor."""
