"""A store: a folder of published versions, policy-000003-SHA256.rarely, and used.json, whose last name is in use.

A published file never changes, and its name says what is in it.
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

from rarely import Policy
from rarely.cluster.campaign import Url
from rarely.cluster.files import Folder
from rarely.errors import InvalidInput, RarelyError
from rarely.extend.provisional import archive, restore

USED = "used.json"
PUBLISHED = re.compile(r"policy-\d{6}-[0-9a-f]{64}\.rarely")


def publish(policy: Policy, url: Url) -> str:
    """Write the policy's version to a store, make it the one in use, and return the name of its file.

    A file that is there already and damaged is mended. Of two calls at once one raises `FolderBusy`.

    Parameters
    ----------
    policy, url
        What deciders will use; a folder, or a URL of a file system that pyarrow knows.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import publish
    >>> publish(LinUCB(dim=2, schedule=OnDemand(), seed=0), tempfile.mkdtemp())[:14]
    'policy-000000-'
    """
    store = Folder.at(url)
    with tempfile.TemporaryDirectory() as scratch:
        policy.save(Path(scratch) / "policy")
        content = (Path(scratch) / "policy").read_bytes()
    name = f"policy-{policy.version:06d}-{hashlib.sha256(content).hexdigest()}.rarely"
    with store.alone():
        names = store.names()
        used = names_used(store) if USED in names else []
        if name not in names or store.read(name) != content:
            store.write(name, content)
        if used[-1:] != [name]:
            store.write_json(USED, [*used, name])
    return name


def rollback(url: Url) -> str:
    """Let a store's deciders return to the file that was in use before, and return its name.

    Parameters
    ----------
    url
        The store.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> store = tempfile.mkdtemp()
    >>> names = [publish(LinUCB(dim=dim, schedule=OnDemand(), seed=0), store) for dim in (1, 2)]
    >>> rollback(store) == names[0]
    True
    """
    store = Folder.at(url)
    with store.alone():
        *used, _ = names_used(store)
        if not used:
            raise InvalidInput(f"{store.path} has had one version in use, so there is none to return to.")
        store.write_json(USED, used)
    return used[-1]


def names_used(store: Folder) -> list[str]:
    """Return the files that have been in use and not been left by `rollback`; the last is in use."""
    if USED not in store.names():
        raise InvalidInput(f"{store.path} must be a store with a published version; it has no {USED}.")
    names = store.read_json(USED)
    if not names or not isinstance(names, list) or not all(PUBLISHED.fullmatch(str(name)) for name in names):
        raise InvalidInput(
            f"{store.path}/{USED} is damaged: it must list versions. Remove it, and publish the one to use."
        )
    return names


def read_published(store: Folder, name: str, model: Any = None) -> Policy:
    """Return a published policy; refuse a file that its name does not fit."""
    content = store.read(name)
    if hashlib.sha256(content).hexdigest() != name[14:78]:
        raise RarelyError(f"{store.path}/{name} has not the SHA-256 of its name; publish the version again.")
    policy: Policy = restore(archive.parse(io.BytesIO(content), name), name, model=model)
    return policy
