"""`python -m budgetalloc.cli`, the same as `budgetalloc`."""

import sys

from budgetalloc.cli import main

sys.exit(main())
