"""Property tests draw the same examples each time: what passed before a commit passes after it.

`HYPOTHESIS_PROFILE=explore make test` draws new ones.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
