"""The report on a finished run: the use of its rollouts, predictability of waste, and a replay with
other policies.

run = report("run/completions")
print(as_text(run))
"""

from budgetalloc.report.html import as_html
from budgetalloc.report.summary import Report, as_json, report
from budgetalloc.report.text import as_text

__all__ = ["Report", "as_html", "as_json", "as_text", "report"]
