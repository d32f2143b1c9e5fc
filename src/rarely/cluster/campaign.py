"""A campaign: one version decides for every row of Parquet files, block by block, on as many processes as there are.

    contexts   Parquet, one row a round: an id, and what contexts are made of       block b   rounds bN … (b + 1)N − 1
    decisions  a folder: _campaign.json, and block-00000000.parquet for each block

Within a version a policy with frozen bonuses is a function, so a block is a pure task: it can be done twice, anywhere,
with the same bits. A worker writes its block under a temporary name, and the driver names it. The names in the folder
are all the state there is: the same call resumes.

What an update will ask about arms that were offered and not chosen is in the metadata of each block: `OfferedArms`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from rarely import FramePolicy, Policy
from rarely.cluster.files import Folder, Rows, as_parquet, readable
from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Array
from rarely.extend.checks import check_whole, is_whole
from rarely.extend.provisional import DecidedRounds, OfferedArms, VersionFunction, plain
from rarely.frames.tables import FrameTables
from rarely.logs.tables import pyarrow
from rarely.runs.machine import ONE_THREAD, RETRIES, connected, ended

MANIFEST = "_campaign.json"
BLOCK = 65_536  # rounds in a block
DECIDED = ("version", "arm", "probability", "mean", "bonus")  # columns of what was decided
KINDS = {"round": "int64", "block": "int64", "version": "int64", "arm": "int64"}
KINDS |= {"probability": "double", "mean": "double", "bonus": "double"}
"""Types of the columns of a block, besides ids and contexts."""
MAY_CHANGE = ("covariance", "limits", "loops", "dropped", "lost")
"""Settings of a policy, and entries of its records of updates, that are no part of what it is and has learned."""
FIRST = 64  # rows whose contexts tell one function of contexts from another
Url = str | os.PathLike[str]
Contexts = Callable[[Any], Any]  #: From a record batch to the contexts of its rounds, (n, K, d) or a list of (K_i, d).
Task = Callable[..., str]  #: Writes a file, and returns its temporary name.
Calls = Iterable[tuple[str, Sequence[Any]]]  # the name of each file, and the arguments of the task that writes it
Commit = Callable[[Folder, Task, Calls], None]


@dataclass(frozen=True)
class Campaign:
    """The decisions of one version, in a folder.

    Examples
    --------
    >>> Campaign(version=1, rounds=10, block=4, dim=2, policies=()).blocks
    3
    """

    version: int
    rounds: int
    block: int
    dim: int
    policies: tuple[str, ...]
    """The `lineage` of the policy when it decided; of a wave, those of all policies after their first update."""
    source: tuple[tuple[str, int, int, int], ...] = ()
    """Path, rows, time of the last change, and size of the files that the rounds come from."""
    how: str = ""
    """A digest of the policy's state, and of what ids and contexts are made of the first rows, and by which code."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.rounds // self.block)

    @classmethod
    def read(cls, folder: Folder) -> Campaign:
        """Return the campaign in a folder."""
        if MANIFEST not in folder.names():
            raise InvalidInput(f"{folder.path} must be a folder of decisions; it has no {MANIFEST}.")
        fields = folder.read_json(MANIFEST)
        with readable(f"{folder.path}/{MANIFEST}", "a campaign of this version"):
            lists = {"policies": tuple(map(str, fields["policies"])), "source": tuple(map(tuple, fields["source"]))}
            found = cls(**fields | lists)
            counts = {"version": found.version + 1, "rounds": found.rounds, "block": found.block, "dim": found.dim}
            if wrong := [name for name, count in counts.items() if not is_whole(count) or count < 1]:
                raise ValueError(f"{wrong[0]} must be a count")
            return found


def lineage(policy: Policy, updates: int | None = None) -> str:
    """Return a digest of what a policy is, and of what it has learned in its first updates, by default in all."""
    settings = {name: value for name, value in policy.settings().items() if name not in MAY_CHANGE}
    records = [asdict(record) | dict.fromkeys(MAY_CHANGE) for record in policy.updates[:updates]]
    whole = json.dumps([type(policy).__name__, settings, records], default=plain)
    return hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()


def parts_of(policy: Policy | FramePolicy) -> tuple[Policy, FrameTables | None]:
    """Return what decides and learns, and the tables around it, if it is asked by columns."""
    return (policy.policy, policy.tables) if isinstance(policy, FramePolicy) else (policy, None)


def key_of(policy: Policy) -> bytes:
    """Return the key of a version's random numbers."""
    return hashlib.blake2b(f"{policy.settings()['seed']}/{policy.version}".encode(), digest_size=32).digest()


def uniforms(key: bytes, ids: Iterable[Any]) -> Array:
    """Return one number from [0, 1) for each id, which depends on the version's key and the id alone."""
    drawn = (hashlib.blake2b(str(one).encode(), digest_size=8, key=key).digest() for one in ids)
    return np.array([(int.from_bytes(each, "big") >> 11) * 2.0**-53 for each in drawn])


def listed_contexts(dim: int, batch: Any) -> Any:
    """Return the contexts of a record batch whose column `contexts` lists the K·d numbers of each round."""
    column = batch.column("contexts")
    lengths = column.value_lengths().to_numpy(zero_copy_only=False) if hasattr(column, "value_lengths") else np.zeros(1)
    numbers = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float64)
    if not (lengths > 0).all() or (lengths % dim).any():
        raise InvalidInput(f"the column contexts must list K·d numbers for every round, d = {dim}.")
    if (lengths == lengths[0]).all():
        return numbers.reshape(len(lengths), -1, dim)
    return np.split(numbers.reshape(-1, dim), np.cumsum(lengths // dim)[:-1])


def columns_as_contexts(tables: FrameTables, batch: Any) -> Any:
    """Return the contexts of a record batch whose columns are those of users."""
    assert tables.users is not None
    return tables.placed(tables.users.transform(batch), None)


def decide(
    policy: Policy | FramePolicy,
    contexts_url: Url,
    out_url: Url,
    *,
    contexts: Contexts | None = None,
    id: str = "id",
    block: int = BLOCK,
    jobs: int | None = None,
    address: str | None = None,
) -> Campaign:
    """Decide every row of Parquet files with the policy's version and frozen bonuses, and return what was decided.

    The folder `out_url` then has block-….parquet with id, round, block, version, arm, probability, mean, bonus and
    the chosen context of every row. The policy does not change; `update` takes the folder. After a crash the same call
    does what is missing. Raises `InvalidInput` if the folder has decisions of another policy, other files (by size and
    time of change), other ids or another function of contexts (by its source and what it makes of the first rows), and
    `FolderBusy` while another call decides into it.

    Parameters
    ----------
    policy
        Its scale of contexts must be settled, by a pilot or a log.
    contexts_url, out_url
        A Parquet file or a folder of them, also with folders in it such as date=2026-01-31, which become columns of
        text; a folder. Paths, or URLs of file systems that pyarrow knows.
    contexts
        A function from a record batch to the contexts of its rows, (n, K, d) or a list of (K_i, d), that can be
        pickled. Without it there must be a column `contexts` that lists K·d numbers; or the columns of users, of which
        a `FramePolicy` with named arms makes contexts.
    id
        The column that names a decision; no two rows may have the same. A random choice depends on it and on the
        version alone.
    block
        Rounds in a block.
    jobs, address
        Processes of a local Ray, by default one a core; or the address of a cluster, such as "ray://head:10001".

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> from rarely import LinUCB, OnDemand
    >>> here = tempfile.mkdtemp()
    >>> people = pa.table({"id": ["a", "b"], "contexts": [[1.0, 2.0], [4.0, 3.0]]})
    >>> pa.parquet.write_table(people, f"{here}/people.parquet")
    >>> decide(LinUCB(dim=1, schedule=OnDemand()), f"{here}/people.parquet", f"{here}/night", jobs=1).rounds
    2
    >>> pa.parquet.read_table(f"{here}/night").column("arm").to_pylist()
    [1, 0]
    """
    check_whole("block", block, 1)
    policy, tables = parts_of(policy)
    version = VersionFunction.of(policy)
    if contexts is None and tables is not None and not tables.arms:
        raise InvalidInput(
            "a policy of items needs the items of each row: give contexts=, a function of a record batch that returns "
            "policy.contexts(users, items)."
        )
    users = None if tables is None else tables.users
    wanted = ["contexts"] if users is None else [column.name for column in users.columns]
    rows = Rows.at(contexts_url, (id,) if contexts else (id, *wanted))
    if not len(rows):
        raise InvalidInput(f"{os.fspath(contexts_url)} must have at least one row to decide; it has none.")
    folder = Folder.at(out_url)
    own = partial(listed_contexts, policy.dim) if tables is None else partial(columns_as_contexts, tables)
    read = contexts or own
    how = _how(policy, rows, id, read)
    planned = Campaign(policy.version, len(rows), block, policy.dim, (lineage(policy),), rows.files, how)
    task = partial(_decide_block, version, key_of(policy), rows, folder, id, read)
    calls = ((f"block-{b:08d}.parquet", (b, b * block, min(len(rows), (b + 1) * block))) for b in range(planned.blocks))
    with folder.alone():
        if MANIFEST not in folder.names():
            folder.write_json(MANIFEST, asdict(planned))
        elif (found := Campaign.read(folder)) != planned:
            other = [name for name, value in asdict(planned).items() if asdict(found)[name] != value]
            raise InvalidInput(
                f"{folder.path} has decisions of another policy, of other contexts, ids or code, or in other blocks "
                f"({', '.join(other)}); to resume, the call and its files must be the same. Give a folder of its own "
                "for each version and each set of contexts."
            )
        with committing(jobs, address) as commit:
            commit(folder, task, calls)
        folder.tidy()
    return planned


@contextmanager
def committing(jobs: int | None, address: str | None) -> Iterator[Commit]:
    """Yield a function that makes those files of a folder that are missing, on Ray."""
    with connected(jobs, address, share=True) as ray:
        # One BLAS thread each, in a Ray that somebody else started as well.
        run = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": ONE_THREAD})(_called)

        def commit(folder: Folder, task: Task, calls: Calls) -> None:
            shared, done = ray.put(task), set(folder.names())
            missing = ((name, partial(run.remote, shared, *args)) for name, args in calls if name not in done)
            for name, ref in ended(ray, missing, jobs):
                try:
                    folder.commit(ray.get(ref), name)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    raise RarelyError(
                        f"every process that made {name} was killed; is there enough memory? What is done is kept, and "
                        "the same call resumes."
                    ) from error
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, RarelyError):
                        raise error.cause from None
                    raise RarelyError(f"{name} cannot be made: {type(error.cause).__name__}: {error.cause}") from error

        yield commit


def _called(task: Task, *args: Any) -> str:
    return task(*args)


def _how(policy: Policy, rows: Rows, id: str, contexts: Contexts) -> str:
    """Return the digest of a campaign: see `Campaign.how`."""
    called, given = contexts, list[Any]()
    while isinstance(called, partial):
        given += [called.args, sorted(called.keywords.items())]
        called = called.func
    try:
        source = inspect.getsource(called)
    except (OSError, TypeError):  # of an object, or typed into a console
        source = ""
    name = getattr(called, "__qualname__", type(called).__qualname__)
    arguments = re.sub(" at 0x[0-9a-f]+", "", repr(given))  # where an object lies is no part of it
    digest = hashlib.blake2b(json.dumps([policy.fingerprint(), id, name, source, arguments]).encode(), digest_size=8)
    where, batch = next(rows.batches(0, min(FIRST, len(rows))))
    with naming(where):
        made = contexts(batch)
        for part in made if isinstance(made, list | tuple) else [made]:
            digest.update(np.asarray(part, np.float64).tobytes())
    return digest.hexdigest()


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Let errors of the caller's data and functions say where they arose."""
    try:
        yield
    except RarelyError as error:
        raise type(error)(f"{where}: {error}") from error
    except Exception as error:
        raise InvalidInput(f"{where}: contexts cannot be made: {type(error).__name__}: {error}") from error


def _decide_block(
    version: VersionFunction, key: bytes, rows: Rows, folder: Folder, id: str, contexts: Contexts, *place: int
) -> str:
    """Decide a block, given by its number, first round and end, and write it; `key` is that of the random numbers."""
    block, start, stop = place
    ids, parts, offered = list[Any](), list[DecidedRounds](), version.offered()
    for where, batch in rows.batches(start, stop):
        ids.append(batch.column(id))
        if ids[-1].null_count:
            raise InvalidInput(f"{where}: every decision needs an id, so that its reward finds it; one is null.")
        draws = uniforms(key, ids[-1].to_pylist()) if version.draws else np.zeros(0)
        with naming(where):
            parts.append(version.decide(contexts(batch), draws, offered))
        if len(parts[-1].arms) != len(batch):
            raise InvalidInput(f"{where}: contexts must have {len(batch)} rounds, one a row.")
    *columns, chosen = map(np.concatenate, zip(*parts, strict=True))
    decided = dict(zip(DECIDED, (np.full(stop - start, version.number), *columns), strict=True))
    table = decision_table(pyarrow().chunked_array(ids), start, block, decided, chosen, offered)
    return folder.started(as_parquet(table))


def decision_table(
    ids: Any, start: int, block: int, decided: dict[str, Array], contexts: Array, offered: OfferedArms
) -> Any:
    """Return decisions as a table; `start` is the first round, from 0."""
    pa, count = pyarrow(), len(contexts)
    columns = {"id": ids, "round": np.arange(start, start + count), "block": np.full(count, block), **decided}
    # Without room for nulls a list is read in three quarters of the time.
    listed = pa.list_(pa.field("element", pa.float64(), nullable=False), contexts.shape[1])
    chosen = pa.FixedSizeListArray.from_arrays(pa.array(contexts.ravel()), type=listed)
    table = pa.table(columns).append_column(pa.field("context", listed, nullable=False), chosen)
    said = json.dumps(offered.describe())
    return table.replace_schema_metadata({"rarely": said, "crc": f"{zlib.crc32(said.encode()):08x}"})


def read_block(folder: Folder, block: int, columns: Sequence[str] | None = None) -> Any:
    """Return the table of a block, or some columns of it; refuse one that is damaged."""
    path = f"{folder.path}/block-{block:08d}.parquet"
    with readable(path), folder.system.open_input_file(path) as file:
        table = pyarrow("parquet").read_table(file, columns=columns, page_checksum_verification=True)
        said = table.schema.metadata or {}
        if b"%08x" % zlib.crc32(said[b"rarely"]) != said[b"crc"]:
            raise OSError("its checksum is another")
        for name, column in zip(table.column_names, table.columns, strict=True):
            kind = KINDS.get(name, str(column.type))
            wrong = str(column.type) != kind or (name == "context" and not hasattr(column.type, "list_size"))
            if not wrong and name in KINDS:
                numbers = column.to_numpy()
                wrong = numbers.min(initial=0) < 0 if kind == "int64" else not np.isfinite(numbers).all()
            if wrong or (name != "id" and column.null_count):
                raise OSError(f"its column {name!r} does not hold what a decision has")
        return table


def offered_in(folder: Folder, block: int) -> OfferedArms:
    """Return what a block says of the arms that were offered in it."""
    with readable(f"{folder.path}/block-{block:08d}.parquet"):
        said = read_block(folder, block, ["arm"]).schema.metadata[b"rarely"]
        return OfferedArms.from_description(json.loads(said))


def contexts_of(table: Any) -> Array:
    """Return the chosen contexts of a block, (n, d)."""
    column = table.column("context").combine_chunks()
    return np.asarray(column.flatten().to_numpy(), np.float64).reshape(len(column), -1)
