"""The page of a run: one HTML file that needs nothing else.

results.db --query--> page.py (words and tables) + plots.py, matrix.py (geometry) --templates/report.html.j2--> report.html
"""

from hpcq.reports.page import write_report

__all__ = ["write_report"]
