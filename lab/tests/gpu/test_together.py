"""Works in threads, one at a time: what they compute together, and how they end."""

import threading

import pytest

from rarely_lab.gpu.together import compute, run_together


def test_calls_of_all_works_are_made_in_one():
    sizes = []

    def doubled(calls):
        sizes.append(len(calls))
        return [2 * number for (number,) in calls]

    def work(number):
        return compute("doubled", number) + compute("doubled", 10 * number)

    assert run_together([lambda n=n: work(n) for n in range(3)], {"doubled": doubled}) == [0, 22, 44]
    assert sizes == [3, 3]


def test_works_that_got_ahead_wait_until_the_others_are_there():
    sizes = []

    def late(calls):
        sizes.append(len(calls))
        return [None] * len(calls)

    def work(steps):
        for _ in range(steps):
            compute("early")
        compute("late")

    run_together([lambda n=n: work(n) for n in (0, 1, 5)], {"early": lambda calls: calls, "late": late})
    assert sizes == [3]


def test_only_one_work_runs_at_a_time():
    running, most = [0], [0]

    def work():
        for _ in range(20):
            running[0] += 1
            most[0] = max(most[0], running[0])
            running[0] -= 1
            compute("nothing")

    run_together([work] * 8, {"nothing": lambda calls: calls})
    assert most == [1]


@pytest.mark.parametrize("where", ["a work", "what is computed together"])
def test_an_error_ends_all_works_and_is_raised(where):
    before = threading.active_count()

    def work(number):
        if where == "a work" and number == 1:
            raise ZeroDivisionError
        return compute("failing")

    def failing(calls):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_together([lambda n=n: work(n) for n in range(3)], {"failing": failing})
    assert threading.active_count() == before
