"""What holds for all tests."""

import os

from hypothesis import settings

# How long an example takes depends on the machine and on whatever else runs on it. Every run draws other examples, so
# few of them a run find in time what many would find at once; EXAMPLES=100 draws many, as the workflows do.
settings.register_profile("any machine", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "15")))
settings.load_profile("any machine")
