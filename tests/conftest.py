"""Common to all tests. That this file is here puts `tests` on the path, so that tests can import `builders`."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny nets lose seconds to threads that wait for shared cores
settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same cases on every machine
settings.load_profile("repeatable")
