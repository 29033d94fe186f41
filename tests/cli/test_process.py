"""What the processes that stay do for themselves."""

import subprocess
import sys

COLLECTED = """
import gc, weakref
from stigmergy.cli.process import YOUNG_OBJECTS, spare_what_stays

class Ring:
    def __init__(self):
        self.me = self

before, here = Ring(), Ring()
left = weakref.ref(before)
del before
spare_what_stays()
assert left() is None, "garbage of the time before stays for ever"
assert gc.get_freeze_count() > 1_000, "what is loaded is looked at again and again"
assert not any(each is here for each in gc.get_objects())

rings = [weakref.ref(Ring())]
assert rings[0]() is not None
kept = [[] for _ in range(YOUNG_OBJECTS + 10)]
assert rings[0]() is None, "garbage is not found any more"
"""


def test_what_is_loaded_is_spared_by_the_garbage_collector_and_garbage_is_still_found() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
