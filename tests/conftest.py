"""Property tests draw the same examples each time: what passed before a commit passes after it.

`HYPOTHESIS_PROFILE=explore make test` draws new ones. Neither has a deadline: a busy machine fails no test.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

collect_ignore = ["integrations/fake_tinker.py"]  # it runs where Tinker is
