"""JSON in which somebody, or some accident, changed a few places."""

from __future__ import annotations

import copy
import math

from hypothesis import strategies as st

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 30),
    st.sampled_from([10**18, -(10**18), 10**400, 1e308, -1e9, 1e100, 1e-300, math.nan, math.inf, -math.inf, 0.5, -0.0]),
    st.floats(),
    st.sampled_from(["", "x", "\ud800", "$\\frac$", "<b>", "nan", "cosine", "fixed"]),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.lists(st.floats(), max_size=30),
)


@st.composite
def mutations(draw, data):
    """The same JSON with one to three places changed, removed, doubled or cut."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        inner = data
        while True:
            names = sorted(inner) if isinstance(inner, dict) else range(len(inner))
            if not names:
                break
            name = draw(st.sampled_from(names))
            if isinstance(inner[name], dict | list) and draw(st.integers(0, 3)):
                inner = inner[name]
                continue
            how = draw(st.sampled_from(["junk", "junk", "remove", "scale", "cut"]))
            if how == "remove":
                del inner[name]
            elif how == "scale" and isinstance(inner[name], int | float):
                inner[name] = inner[name] * draw(st.sampled_from([-1, 0, 0.5, 3, 1e6, 1e99]))
            elif how == "cut" and isinstance(inner[name], list):
                inner[name] = inner[name][: draw(st.integers(0, len(inner[name])))]
            else:
                inner[name] = draw(JUNK)
            break
    return data
