"""Results and verdicts of a run for other programs: tables, CI systems, dashboards.

store, analysis ──collect──> Exported ──one writer per format──> text
"""
