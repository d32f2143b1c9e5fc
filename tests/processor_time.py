"""What tests cost: `PYTHONPATH=tests python -m pytest -p processor_time …` lists files by processor time.

That of processes that a test starts and ends is counted, too. Seconds of a clock would count whatever else runs.
"""

import os
from collections import Counter

import pytest

SHOWN = 40
spent = Counter()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    before = os.times()
    done = yield
    spent[item.location[0]] += sum(os.times()[:4]) - sum(before[:4])
    return done


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{spent.total():.1f} s of processor time")
    for file, seconds in spent.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
