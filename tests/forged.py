"""Files with a field that nobody wrote, sealed again: a forger's, whom a checksum does not stop.

Of each kind of file somebody makes a folder, a forger changes one thing in a copy of it, and somebody uses the copy:
each call must end within bounded time and memory, and with an error of the package's own if with one.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sqlite3
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import rarely
from rarely import (
    Affine,
    BatchNeuralUCB,
    ComposedPolicy,
    Discount,
    EnsemblePolicy,
    FixedGrid,
    FramePolicy,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    OnDemand,
    RarelyError,
    SparseRows,
    Training,
    Uniform,
    Window,
)
from rarely._core.saving import archive
from rarely.extend import ContextMap, Factors, FitResult, Learner
from rarely.extend.provisional import forwarded
from rarely.study import AnalysisPlan, Study
from rarely.study.events import GENESIS, Event, canonical, hash_of
from rarely.theory import KernelUCB

SECONDS, BYTES = 2.0, 200 * 2**20
"""What loading a forged file, or a call of its policy, may take."""
HAS = {name: find_spec(name) is not None for name in ("sklearn", "torch", "pyarrow")}
SPARSE = SparseRows.of(20, 2)
JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 17, 3.5, -0.5, 1e308, -1e308, 1e-320, float("nan"), float("inf")),
    *(10**7, 10**9, 10**12, 2**53, 2**62, 2**63, 2**64, -(2**63), 10**400, "", "x" * 100, "\ud800", "primal"),
    *([], [1], [[]], [None] * 5, {}, {"kind": "x"}, {"kind": [1]}),
)


class Kind(NamedTuple):
    """What may be forged: how its folder is made, how one thing in it is changed, and what its user does."""

    make: Callable[[Path], None]
    forge: Callable[[Path, Random], str]
    use: Callable[[Path, Bounded], None]


class Bounded:
    """Makes calls that must end in time, in bounded memory, and with an error of the package's own if with one."""

    def __init__(self) -> None:
        self.problems = list[str]()
        self.refused = set[str]()

    def __call__(self, name: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return what a call returns, None where it raises."""
        traced = tracemalloc.is_tracing()
        if traced:
            tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.process_time()
        try:
            return call(*args, **named)
        except RarelyError:
            self.refused.add(name)
            return None
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            self.problems.append(f"{name}: {type(error).__name__} at {where}: {error}"[:300])
            return None
        finally:
            took, held = time.process_time() - began, tracemalloc.get_traced_memory()[1] - before
            if took > SECONDS or held > BYTES:
                self.problems.append(f"{name} took {took:.1f} s and {held / 2**20:.0f} MiB")


def prepared(kind: str, folder: Path) -> None:
    """Make the original of a kind, and use it as it is: it must load, do no harm, and imports what the use needs."""
    bounded = Bounded()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind].make(folder / "original")
        shutil.copytree(folder / "original", folder / "forged")
        KINDS[kind].use(folder / "forged", bounded)
    assert not bounded.problems, bounded.problems
    assert not bounded.refused & {"load", "open"}, f"the original of {kind} cannot be opened"


def search(kind: str, folder: Path, seed: int, count: int, begin: Callable[[str], Any] = str) -> list[str]:
    """Return what went wrong with so many forged files of a kind that is `prepared`; `begin` hears of each first."""
    forger, random, original, forged = KINDS[kind], Random(f"{kind} {seed}"), folder / "original", folder / "forged"
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            shutil.rmtree(forged, ignore_errors=True)
            shutil.copytree(original, forged)
            try:
                what = forger.forge(forged, random)
            except (ValueError, TypeError, OverflowError, sqlite3.Error):
                continue  # no file can hold that
            begin(what)
            bounded = Bounded()
            forger.use(forged, bounded)
            problems += [f"{what} → {problem}" for problem in bounded.problems]
    return problems


@contextmanager
def measured() -> Iterator[None]:
    """Measure the memory of calls."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


# --- what a forger changes


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the fields of JSON are, parts inside included."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    for name, part in items:
        yield (*path, name)
        yield from places(part, (*path, name))


def change_field(header: Any, random: Random) -> str:
    """Change one field of JSON, and return how."""
    place = random.choice(list(places(header)))
    *outer, last = place
    inside = header
    for step in outer:
        inside = inside[step]
    if random.random() < 0.05:
        del inside[last]
        return f"{place} left out"
    inside[last] = copy.deepcopy(random.choice(JUNK))
    return f"{place} = {str(inside[last])[:40]!r}"


def change_array(arrays: dict[str, Any], random: Random) -> str:
    """Put another array in the place of one, and return how it differs."""
    name, how = random.choice(sorted(arrays)), random.randrange(6)
    array = arrays[name].copy()
    if how == 0 and array.size:
        special = (0.0, np.nan, np.inf, 1e308, -1.0, 1e-320, 1e150) if array.dtype.kind == "f" else (0, 1, -1, 100)
        place, value = random.randrange(array.size), random.choice(special)
        array.flat[place] = value
        arrays[name] = array
        return f"{name}[{place}] = {value}"
    others: list[tuple[str, Callable[[], Any]]] = [
        ("float32", lambda: array.astype(np.float32)),
        ("negative", lambda: ~array if array.dtype == bool else -array),
        ("empty", lambda: np.zeros((0,) * max(array.ndim, 1), array.dtype)),
    ]
    if array.ndim:
        others += [
            ("without the last row", lambda: array[:-1]),
            ("twice", lambda: np.concatenate((array, array))),
        ]
    said, other = random.choice(others)
    arrays[name] = other()
    return f"{name}: {said}"


def change_archive(path: Path, random: Random) -> str:
    """Change one field or array of a policy's file."""
    found = archive.read(path)
    arrays = dict(found.arrays)
    what = change_array(arrays, random) if random.random() < 0.3 else change_field(found.header, random)
    archive.write(path, found.header, arrays)
    return what


def change_json(path: Path, random: Random) -> str:
    """Change one field of a file of JSON."""
    content = json.loads(path.read_text())
    what = change_field(content, random)
    path.write_text(json.dumps(content))
    return f"{path.name} {what}"


# --- policies


def one_hot(rounds: int, seed: int = 0) -> Any:
    """Rounds of the same three arms."""
    return np.broadcast_to(np.eye(3), (rounds, 3, 3))


def dense(rounds: int, seed: int = 0) -> Any:
    """Rounds of three arms, new ones each time."""
    return np.random.default_rng(seed).normal(size=(rounds, 3, 3))


def sparse(rounds: int, seed: int = 0) -> Any:
    """Rounds of three packed arms."""
    rng = np.random.default_rng(seed)
    rows = [SPARSE.pack([{int(rng.integers(20)): 1.0, 3: rng.normal()} for _ in range(3)]) for _ in range(rounds)]
    return np.stack(rows)


def users(rounds: int, seed: int = 0) -> Any:
    """Rows of a table with a column of each kind."""
    rng = np.random.default_rng(seed)
    columns = {"age": rng.normal(40, 9, rounds), "town": rng.choice(["Ulm", "Bonn"], rounds)}
    columns |= {"day": rng.choice(np.arange("2026-01-01", "2026-01-09", dtype="datetime64[D]"), rounds)}
    return columns | {"id": [f"{i % 7}" for i in range(rounds)]}


def policy_kind(
    policy: Callable[[], Any], contexts: Callable[..., Any] = dense, model: Callable[[], Any] = str
) -> Kind:
    """Return the file of a small policy that has learned, dropped rounds and waits for rewards."""

    def make(folder: Path) -> None:
        folder.mkdir()
        one = policy()
        for seed, count in ((0, 20), (1, 6), (2, 4)):
            decision = one.select(contexts(count, seed))
            one.observe(decision[: count - 1], np.random.default_rng(seed).normal(size=count - 1))
            if seed < 2:
                one.update()
            one = copy.deepcopy(one) if seed else one
        one.compact(open_for=8)
        one.save(folder / "policy.rarely")

    def use(folder: Path, bounded: Bounded) -> None:
        path = folder / "policy.rarely"
        one = bounded("load", rarely.load, path, model=model() or None)
        if one is not None and not bounded.problems:
            use_policy(one, contexts, bounded)
            bounded("save", one.save, path)

    return Kind(make, lambda folder, random: change_archive(folder / "policy.rarely", random), use)


def use_policy(policy: Any, contexts: Callable[..., Any], bounded: Bounded) -> None:
    """Do what users do with a policy."""
    single = contexts(1, 8)
    single = {name: values[0] for name, values in single.items()} if isinstance(single, dict) else single[0]
    bounded("read", lambda: (policy._repr_html_(), repr(policy), policy.settings(), policy.fingerprint()))
    bounded("read", lambda: (policy.exact_rounds, policy.history.rows, policy.history.largest_spread))
    bounded("score", lambda: policy.score(contexts(2, 7)))
    decisions = [bounded("select one", lambda: policy.select(single))]
    decisions.append(bounded("select", lambda: policy.select(contexts(5, 9))))
    for decision in (each for each in decisions if each is not None):
        bounded("observe", policy.observe, decision, np.ones(np.shape(decision.arm)))
    bounded("update", policy.update, force=True, seconds=1.0)  # settings may ask for any number of steps
    bounded("compact", policy.compact)
    bounded("select again", lambda: policy.select(contexts(3, 10)))


@dataclass(frozen=True, eq=False)
class Ridged(Learner):
    """A ridge estimate of the user's, on a map of contexts."""

    map: ContextMap
    coefficients: Any = None

    dim = forwarded("map.dim")

    @property
    def widths(self) -> Any:
        return ((1, self.map.scaled_dim),)

    def assess(self, contexts: Any) -> Any:
        x = self.map(contexts)
        means = np.zeros(len(x)) if self.coefficients is None else x @ self.coefficients
        return means, Factors((x,), (np.ones((len(x), 1)),))

    def learn(self, history: Any, watch: Any = None) -> Any:
        _, contexts, rewards, _ = history.samples()
        x = self.map(contexts)
        return FitResult(replace(self, coefficients=np.linalg.solve(np.eye(x.shape[1]) + x.T @ x, x.T @ rewards)))


small: dict[str, Any] = {"hidden": 4, "seed": 1}
short: dict[str, Any] = small | {"training": Training(steps=3)}
items = [{"name": f"item {i}", "price": float(i)} for i in range(3)]


def frame_policy(**settings: Any) -> Any:
    kinds = {"age": "number", "town": "category", "day": "date", "id": "hash"}
    encoder = rarely.FrameEncoder.fit(users(40), kinds=kinds, buckets=8)
    return FramePolicy.fit(LinUCB, encoder, schedule=OnDemand(), seed=1, **settings)


def torch_module() -> Any:
    from torch import manual_seed, nn

    from rarely.torch import Module

    manual_seed(0)
    return Module(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))


KINDS: dict[str, Kind] = {
    "LinUCB": policy_kind(lambda: LinUCB(3, FixedGrid(100, 10), exploration=Mixture(0.1), seed=1)),
    "LinTS": policy_kind(lambda: LinTS(3, OnDemand(), forgetting=Discount(0.95), covariance="dual", seed=1)),
    "sparse": policy_kind(lambda: LinUCB(schedule=OnDemand(), seed=1, **SPARSE.settings), sparse),
    "default": policy_kind(lambda: BatchNeuralUCB(3, FixedGrid(100, 10), seed=1)),
    "network": policy_kind(lambda: BatchNeuralUCB(3, FixedGrid(100, 10), **small)),
    "returning": policy_kind(lambda: BatchNeuralUCB(3, OnDemand(horizon=100), **small), one_hot),
    "primal": policy_kind(
        lambda: BatchNeuralUCB(3, OnDemand(), covariance="primal", within_batch="running", **short), dense
    ),
    "last layer": policy_kind(lambda: NeuralUCB(3, covariance="last_layer", **short)),
    "epsilon": policy_kind(lambda: NeuralEpsilonGreedy(3, OnDemand(), **short)),
    "NeuralTS": policy_kind(lambda: NeuralTS(3, OnDemand(), covariance="diagonal", **short)),
    "NeuralLinear": policy_kind(lambda: NeuralLinear(3, OnDemand(), forgetting=Window(12), **short)),
    "KernelUCB": policy_kind(lambda: KernelUCB(3, OnDemand(), ridge=0.1, seed=1)),
    "composed": policy_kind(lambda: ComposedPolicy(Ridged(Affine.identity(3, constant=True)), OnDemand(), seed=1)),
    "Uniform": policy_kind(lambda: Uniform(3, OnDemand(), seed=1)),
    "frame": policy_kind(lambda: frame_policy(arms=["a", "b", "c"]), users),
}
if HAS["sklearn"]:
    from sklearn.linear_model import Ridge

    KINDS["ensemble"] = policy_kind(lambda: EnsemblePolicy(Ridge(), 3, OnDemand(), members=3, seed=1))
if HAS["torch"]:
    KINDS["torch"] = policy_kind(
        lambda: BatchNeuralUCB(model=torch_module(), schedule=OnDemand(), seed=1, training=Training(steps=3)),
        model=torch_module,
    )


# --- studies


def make_study(folder: Path) -> None:
    folder.mkdir()
    policy = LinTS(dim=3, schedule=FixedGrid(1000, 20), seed=7)
    url = f"sqlite:///{folder}/study.db"
    with Study.create(url, "trial", policy=policy, arms=["a", "b", "c"], control="a") as study:
        for first in (0, 6, 12):
            for i in range(first, first + 6):
                answer = study.ask(dense(1, i)[0], id=f"{i}", available=["a", "b"] if i == 3 else None)
                study.tell(answer.id, float(answer.index == 1))
            if first < 12:
                study.update()
        study.tell("5", 2.0, key="more", arm="c", actor="ann", reason="asked for it")
        study.tell("nobody", 1.0)
        study.rollback(1, actor="ann", reason="complaints")


def make_looks(folder: Path) -> None:
    folder.mkdir()
    plan = AnalysisPlan(36, looks=[12, 24, 36], effect=0.2, subgroups={"high": (0, 0.0, None)})
    policy = LinTS(dim=3, schedule=FixedGrid(1000, 20), seed=7)
    arguments: Any = {"policy": policy, "arms": ["a", "b", "c"], "control": "a", "plan": plan}
    with Study.create(f"sqlite:///{folder}/study.db", "trial", **arguments) as study:
        for i in range(36):
            study.tell(study.ask(dense(1, i)[0], id=f"{i}").id, float(i % 3 == 1))
            if i in (11, 23):
                study.look(actor="ann", reason="for the board")
        study.close_arm("c", actor="ann", approved_by="bob", reason="futility")


def make_columns(folder: Path) -> None:
    folder.mkdir()
    with Study.create(f"sqlite:///{folder}/study.db", "trial", policy=frame_policy(arms=["a", "b", "c"])) as study:
        for i in range(12):
            study.tell(study.ask(by_columns(i), id=f"{i}").id, float(i % 2))
        study.update()
        study.ask(by_columns(3) | {"user": by_columns(3)["user"] | {"town": "Rome"}}, id="elsewhere")


def by_columns(seed: int) -> dict[str, Any]:
    """A round as a study asks for it where it has columns."""
    row = {name: column[0] for name, column in users(1, seed).items()}
    return {"user": {name: str(each) if name == "day" else each for name, each in row.items()}}


def by_arms(seed: int) -> Any:
    """The contexts of one round."""
    return dense(1, seed)[0]


def change_study(folder: Path, random: Random) -> str:
    """Change a cell, a field of an event or its snapshot, and compute every hash behind it again."""
    with closing(sqlite3.connect(folder / "study.db", isolation_level=None)) as database:
        named = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (trigger,) in named:
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute("PRAGMA foreign_keys = OFF")
        columns = "seq, kind, time, actor, reason, ref, key, why, body, data, previous, hash"
        events = [Event(*row) for row in database.execute(f"SELECT {columns} FROM rarely_events ORDER BY seq")]
        i, how = random.randrange(len(events)), random.random()
        if how < 0.5:
            body = json.loads(events[i].body)
            what = f"event {i + 1} {change_field(body, random)}"
            events[i] = replace(events[i], body=canonical(body))
        elif how < 0.7:
            what = _change_snapshot(database, events, folder, random)
        elif how < 0.85:
            table, column = random.choice([
                *((t, c) for t, cs in OTHER_CELLS.items() for c in cs.split()),
                *(("rarely_events", c) for c in columns.split(", ")[1:-2]),
            ])  # fmt: skip
            value = random.choice([each for each in JUNK if not isinstance(each, list | dict)])
            if table == "rarely_events":
                events[i] = replace(events[i], **{column: b"x" * 16 if column == "data" else value})
            else:
                database.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (value,))
            what = f"{table}.{column} = {str(value)[:40]!r}"
        else:
            data = events[i].data
            events[i] = replace(events[i], data=random.choice([b"", data + data, data[8:], b"\xff" * len(data)]))
            what = f"event {i + 1} other data"
        previous = GENESIS
        database.execute("DELETE FROM rarely_events")
        for event in events:
            event = replace(event, previous=previous)
            event = replace(event, hash=hash_of("trial", event))
            previous = event.hash
            values = [getattr(event, name) for name in columns.split(", ")]
            database.execute(f"INSERT INTO rarely_events (study, {columns}) VALUES (1{', ?' * 12})", values)
    return what


OTHER_CELLS = {
    "rarely_studies": "name budget",
    "rarely_schema": "version rarely",
    "rarely_leases": "token holder taken expires",
    "rarely_snapshots": "seq sha256 policy",
}


def _change_snapshot(database: Any, events: list[Event], folder: Path, random: Random) -> str:
    """Forge a policy in the record, with its SHA-256 wherever that is."""
    seq, old, policy = random.choice(database.execute("SELECT * FROM rarely_snapshots").fetchall())[1:]
    (folder / "policy").write_bytes(policy)
    what = change_archive(folder / "policy", random)
    content = (folder / "policy").read_bytes()
    new = hashlib.sha256(content).hexdigest()
    database.execute("UPDATE rarely_snapshots SET sha256 = ?, policy = ? WHERE seq = ?", (new, content, seq))
    events[:] = [replace(event, body=event.body.replace(old, new)) for event in events]
    return f"snapshot {seq} {what}"


def use_study(folder: Path, bounded: Bounded, asked: Callable[[int], Any] = by_arms) -> None:
    study = bounded("open", Study.open, f"sqlite:///{folder}/study.db", lazy=False)
    study = study or bounded("open lazily", Study.open, f"sqlite:///{folder}/study.db", lazy=True)
    if study is None or bounded.problems:
        return
    with study:
        bounded("verify", study.verify)
        bounded("status", study.status)
        bounded("status", lambda: (repr(study), study._repr_html_()))
        bounded("ask", study.ask, asked(90), id="new")
        bounded("ask again", study.ask, asked(4), id="4")
        bounded("tell", study.tell, "new", 1.0)
        bounded("tell", study.tell, "4", 0.0, key="late")
        bounded("decision", study.decision, "3")
        bounded("versions", study.versions)
        bounded("rollback", study.rollback, 0, actor="ann", reason="again")
        bounded("update", study.update, force=True)
        bounded("events", lambda: list(study.events()))
        bounded("log", study.log)
        bounded("analysis", study.analysis)
        bounded("look", study.look, actor="ann")
        bounded("export", study.export, folder / "export.csv")
        bounded("replay", study.replay)
        bounded("backup", study.backup, folder / "backup.db")
    bounded("restore", Study.restore, folder / "study.db", f"sqlite:///{folder}/restored.db")


KINDS["study"] = Kind(make_study, change_study, use_study)
KINDS["looks"] = Kind(make_looks, change_study, use_study)
KINDS["columns"] = Kind(make_columns, change_study, partial(use_study, asked=by_columns))


# --- fleets and campaigns


def make_fleet(folder: Path) -> None:
    from campaigns import made, write_rewards
    from rarely.cluster import Decider, join, publish, rotate

    publish(made("linear"), folder / "store")
    for first in (0, 8, 16):
        with Decider(folder / "store", folder / "logs" / "1.log", poll=1e6) as decider:
            for i in range(first, first + 8):
                decider.decide(f"{i}", np.random.default_rng(i).normal(size=(4, 3)))
        if first < 16:
            rotate(folder / "logs")
            join(folder / "logs", folder / "waves")
    write_rewards(folder / "rewards.parquet", [f"{i}" for i in range(20)], np.arange(20.0) / 20)
    made("linear").save(folder / "policy")


def make_campaign(folder: Path) -> None:
    from campaigns import made, write_rewards, written
    from rarely.cluster import decide, update

    written(folder / "people", 40)
    with serial():
        first = made("linear")
        decide(first, folder / "people", folder / "waves" / "night", block=16)
        write_rewards(folder / "rewards.parquet", [f"2-{i}" for i in range(20)], np.arange(20.0) / 20)
        update(first, folder / "waves" / "night", folder / "rewards.parquet")
    first.save(folder / "policy")
    write_rewards(folder / "rewards.parquet", [f"2-{i}" for i in range(40)], np.arange(40.0) / 20)


@contextmanager
def serial() -> Iterator[None]:
    """Do what Ray does in this process."""
    from campaigns import serially
    from rarely.cluster import campaign, learning

    with pytest.MonkeyPatch.context() as patch, ExitStack():
        for module in (campaign, learning):
            patch.setattr(module, "committing", serially)
        yield


def change_log(folder: Path, random: Random) -> str:
    """Change one field, or the contexts, of a line of a log, and seal the line again."""
    from rarely.cluster.decider_logs import sealed

    path = random.choice(sorted((folder / "logs").rglob("*.log*")))
    lines = path.read_bytes().splitlines(keepends=True)
    i = random.randrange(len(lines))
    text, tab, packed = lines[i][9:-1].partition(b"\t")
    fields = json.loads(text)
    if random.random() < 0.1 and tab:
        what, packed = "other contexts", random.choice([b"", packed * 2, packed[:-8], b"\xff" * len(packed)])
    else:
        what = change_field(fields, random)
    lines[i] = sealed(fields, tab + packed)
    path.write_bytes(b"".join(lines))
    return f"{path.name}, line {i + 1} {what}"


def change_block(folder: Path, random: Random) -> str:
    """Change one column of a block, or what it says of the arms that were offered, and seal it again."""
    from zlib import crc32

    import pyarrow as pa
    from pyarrow import parquet

    from rarely.cluster.files import as_parquet

    path = random.choice(sorted((folder / "waves").rglob("block-*.parquet")))
    table = parquet.read_table(path)
    said = table.schema.metadata[b"rarely"]
    if random.random() < 0.4:
        content = json.loads(said)
        what, said = change_field(content, random), json.dumps(content).encode()
        if random.random() < 0.1:
            said = random.choice([b"", b"[]", b"7", b"{", b"null"])
    else:
        name = random.choice(table.column_names)
        place, column = table.column_names.index(name), table.column(name)
        arrays = {name: column.to_numpy()} if name not in ("id", "context") else {}
        if arrays and random.random() < 0.7:
            what = change_array(arrays, random)
            changed = arrays[name]
        else:
            changed, what = random.choice([
                (pa.nulls(len(table), column.type), "nulls"),
                (pa.array(["x"] * len(table)), "text"),
                (pa.array([10**9] * len(table)), "large"),
                (pa.array([[1.0]] * len(table)), "lists"),
            ])  # fmt: skip
            what = f"{name}: {what}"
        if random.random() < 0.1:
            table, what = table.drop([name]), f"{name} left out"
        elif random.random() < 0.1:
            table, what = table.slice(0, 3), "a part of the rows"
        else:
            table = table.set_column(place, name, pa.chunked_array([changed]))
    table = table.replace_schema_metadata({"rarely": said, "crc": f"{crc32(said):08x}"})
    with open(path, "wb") as file:
        as_parquet(table)(file)
    return f"{path.name} {what}"


def change_folder(folder: Path, random: Random) -> str:
    """Change one field of what stands beside the blocks, or of the versions in use."""
    found = [path for path in folder.rglob("*.json") if path.stat().st_size > 2]
    return change_json(random.choice(sorted(found)), random)


def use_fleet(folder: Path, bounded: Bounded) -> None:
    from rarely.cluster import Decider, audit, join, prune, rollback, rotate, update

    logs, waves, store = folder / "logs", folder / "waves", folder / "store"
    decider = bounded("open", Decider, store, logs / "1.log", poll=1e6) if store.exists() else None
    if decider is not None:
        bounded("decide", decider.decide, "new", np.zeros((4, 3)))
        decider.close()
    if store.exists():
        bounded("audit", audit, store, logs)
        bounded("audit the rest", audit, store, logs, accept_losses=True)
        bounded("rotate", rotate, logs)
        bounded("join", join, logs, waves)
        bounded("join the rest", join, logs, waves, accept_losses=True)
        bounded("prune", prune, logs, waves)
        bounded("rollback", rollback, store)
    nights = sorted(path for path in waves.iterdir() if path.is_dir())
    with serial():
        bounded("update", update, rarely.load(folder / "policy"), nights, folder / "rewards.parquet")


if HAS["pyarrow"]:
    KINDS["fleet log"] = Kind(make_fleet, change_log, use_fleet)
    KINDS["wave"] = Kind(make_fleet, change_block, use_fleet)
    KINDS["fleet folders"] = Kind(make_fleet, change_folder, use_fleet)
    KINDS["campaign block"] = Kind(make_campaign, change_block, use_fleet)
    KINDS["campaign folder"] = Kind(make_campaign, change_folder, use_fleet)
