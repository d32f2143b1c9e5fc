"""Families of golden lives: the numerics of a kind of policy, told by what it does and not by the bytes of its source.

    digest    16 hex digits of all events of a family's lives: the same on every processor, BLAS and form of the loops
    bits      16 hex digits of the numbers to the last bit: the same where machine, BLAS and loops are the same

`golden.json` beside a module with families keeps what they were in each release, and, under "next", those that have
changed since. It also names the hashes of source files that records of 0.3 carry, so that these still fit.

Lives take about a second a family, so what they gave is cached in the user's cache folder, under a hash of the sources
and of the versions that compute. A cache that cannot be read or written costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rarely import build_info
from rarely.errors import RarelyError
from rarely.extend.provisional import cache_folder, write_file
from rarely.golden.lives import Life, quiet

SOURCES = (".py", ".c", ".cu", ".h", ".toml")
CLEAR = 2e-3  # the margin of every choice of a golden life: rounding, and what a training makes of it, stay far below
TOLERANCE = 1e-5
"""How far numbers may be from those on record, relative to their size: a training in float32 keeps no more digits."""
NEXT = "next"  # the name of the release to come, under which families are kept that have changed since the last
KEPT = 16  # results of a family that its cache file keeps: of some versions of the code, compiled and not


@dataclass(frozen=True)
class Golden:
    """What a family's lives gave here, numbers by life."""

    digest: str
    bits: str
    numbers: dict[str, dict[str, float]]
    margin: float
    seconds: float

    @classmethod
    def read(cls, content: Any) -> Golden:
        """Return it from its cached form, or raise what is wrong with that."""
        golden = cls(**content)
        if not (len(golden.digest) == len(golden.bits) == 16 and math.isfinite(golden.margin + golden.seconds)):
            raise ValueError("not the result of golden lives")
        return golden


@dataclass(frozen=True, eq=False)
class Family:
    """A kind of policy whose numerics change together."""

    name: str
    lives: Callable[[], Mapping[str, Life]]
    """Returns the lives by name; a change in one of them is a change of the family."""
    on: Family | None = None  # a family whose numerics this one's rest on: its digest is part of this one's
    needs: str = ""  # a package without which no life can be played; "" for none

    @property
    def playable(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None

    def play(self, nudge: float = 0.0) -> Golden:
        """Play all lives now; `nudge` is the part of every reward by which it is changed."""
        start = time.process_time()
        with quiet():
            traces = {name: life(nudge) for name, life in self.lives().items()}
        below = [] if self.on is None else [self.on.golden]
        events = {name: trace.events for name, trace in traces.items()}
        numbers = {name: trace.numbers for name, trace in traces.items()}
        digest = _hash([events, *(other.digest for other in below)])
        exact = {name: {key: value.hex() for key, value in each.items()} for name, each in numbers.items()}
        bits = _hash([exact, digest, *(other.bits for other in below)])
        margin = min((trace.margin for trace in traces.values()), default=math.inf)
        return Golden(digest, bits, numbers, min(margin, 1.0), time.process_time() - start)

    @cached_property
    def golden(self) -> Golden:
        """What its lives give here: from this process, from the cache, or played now."""
        where: Any = getattr(self.lives, "func", self.lives)  # of a partial
        key = _hash([source_digest(*sorted({"rarely", where.__module__.partition(".")[0]})), _versions()])
        results: Any = {}
        # There may be no home, or a file of anything. RecursionError is a RuntimeError.
        with suppress(OSError, RuntimeError, ValueError, TypeError, KeyError):
            results = json.loads(self._cache.read_bytes())
            return Golden.read(results[key])
        golden = self.play()
        kept = [*(results.items() if isinstance(results, dict) else ()), (key, asdict(golden))][-KEPT:]
        # Of two processes that write the last one wins, and the other plays again.
        with suppress(OSError, RuntimeError, RarelyError):
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._cache, json.dumps(dict(kept)))
        return golden

    @property
    def _cache(self) -> Path:
        return cache_folder() / "golden" / f"{self.name.replace('/', '-')}.json"


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@cache
def source_digest(*packages: str) -> str:
    """Return 16 hex digits of a hash of all source files of some packages, by which a cached result is found again."""
    whole = hashlib.sha256()
    for package in packages:
        root = Path(str(sys.modules[package].__file__)).parent
        for file in sorted(file for file in root.rglob("*") if file.suffix in SOURCES):
            data = file.read_bytes()
            whole.update(f"{package} {file.relative_to(root).as_posix()} {len(data)} ".encode() + data)
    return whole.hexdigest()[:16]


@cache
def _versions() -> list[str]:
    """Return what decides the last bits beside the sources."""
    info = build_info()
    python = ".".join(platform.python_version_tuple()[:2])
    return [python, info.numpy, info.machine, info.form, info.blas.name, info.blas.version, info.blas.kernel]


class Families(dict[str, Family]):
    """The families of a module, with what they were in earlier releases in the file `golden.json` beside it."""

    def __init__(self, path: Path, *families: Family) -> None:
        super().__init__({family.name: family for family in families})
        self.path = path

    @cached_property
    def releases(self) -> dict[str, Any]:
        """By release, from the first to the next: hashes of its sources in records, and its families."""
        content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        return content

    def expected(self, name: str) -> dict[str, Any]:
        """Return digest and numbers that a family should have; none if it is new."""
        kept = [release["families"][name] for release in self.releases.values() if name in release["families"]]
        return kept[-1] if kept else {"digest": "", "numbers": {}}

    def numerics(self, name: str, code: str) -> str:
        """Return the digest that a record's code stands for: its own, or that of the release whose sources it names."""
        for release in self.releases.values():
            if code in release["codes"] and name in release["families"]:
                return str(release["families"][name]["digest"])
        return code

    def made_by(self, name: str, code: str) -> str:
        """Return the release that made a record of a family, if this code gives other numbers than it; "" elsewhere.

        It is also "" if no release is known to have made it, or if the family cannot be played here.
        """
        digest = self.numerics(name, code)
        kept = ((release, content["families"].get(name)) for release, content in self.releases.items())
        release = next((release for release, family in kept if family and family["digest"] == digest), "")
        return release if release and self[name].playable and self[name].golden.digest != digest else ""

    def complaint(self, name: str) -> str:
        """Say in what a family is not as it is on record; "" if in nothing."""
        golden, kept = self[name].golden, self.expected(name)
        if not kept["digest"]:
            return "it is not on record"
        if golden.digest != kept["digest"]:
            return f"other numbers than on record, {kept['digest']}"
        for life, numbers in golden.numbers.items():
            # Mean and bonus are added, so the larger of them is the scale of both.
            score = max(abs(numbers.get("mean", 0.0)), abs(numbers.get("bonus", 0.0)))
            for key, value in numbers.items():
                size = score if key in ("mean", "bonus") else abs(value)
                if abs(value - kept["numbers"][life][key]) > TOLERANCE * size:
                    return f"{key} of life {life} is {value:.9g}, on record {kept['numbers'][life][key]:.9g}"
        return ""

    def save(self, release: str) -> list[str]:
        """Write the families that are not as they are on record under a release, and return their names.

        What was kept for the next release is then that release's.
        """
        changed = {name: each.golden for name, each in self.items() if each.playable and self.complaint(name)}
        new = {name: {"digest": golden.digest, "numbers": _rounded(golden.numbers)} for name, golden in changed.items()}
        kept = self.releases.pop(NEXT, {"codes": [], "families": {}})
        kept["families"] |= new
        if kept["families"]:
            self.releases[release] = kept
            self.path.write_text(json.dumps(self.releases, indent=1) + "\n", encoding="utf-8")
        return list(new)


def _rounded(numbers: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return ten digits of each number: more differ between machines, and take space."""
    return {life: {key: float(f"{value:.10g}") for key, value in each.items()} for life, each in numbers.items()}
