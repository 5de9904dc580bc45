"""Common to all tests. That this file is here puts `tests` on the path, so that tests can import `builders`."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny nets lose seconds to threads that wait for shared cores
