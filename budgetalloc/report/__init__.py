"""What became of a finished run: its waste, whether it was foreseeable, and what other policies would have drawn.

found = report("run/completions")
print(as_text(found))
"""

from budgetalloc.report.html import as_html as as_html
from budgetalloc.report.machine import as_json as as_json
from budgetalloc.report.summary import Report as Report
from budgetalloc.report.summary import report as report
from budgetalloc.report.text import as_text as as_text
from budgetalloc.report.waste import measure as measure
