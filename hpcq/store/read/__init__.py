"""Questions to the database beyond those of query.py: one result, one run, evidence, exports, doctor."""
