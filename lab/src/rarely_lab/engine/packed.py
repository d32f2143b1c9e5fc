"""Many records in one file, to be published or submitted: a sealed record in each line, gzip around them.

A reproduction of version 0.3 was published as one JSON object instead; `Record.of_object` reads it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rarely.errors import InvalidInput
from rarely.runs.files import LARGEST_FILE, Malformed, reason_of, sealed_text, write_file
from rarely_lab.engine.record import Refusal
from rarely_lab.engine.store import AnyRecord, Found, Store, check_together


def pack(records: Sequence[AnyRecord], path: Path) -> None:
    """Write records into one file."""
    lines = "".join(sealed_text(record.packed()) + "\n" for record in records)
    write_file(path, gzip.compress(lines.encode(), 9, mtime=0))


def read_packed(path: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a packed file; a damaged line is refused, and the others are read."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise Malformed(f"it holds more than {LARGEST_FILE} characters; pack fewer records in each")
        if (whole := record_type.of_object(text)) is not None:
            return Found(whole, [])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InvalidInput(f"{path} is not a file of packed records: {reason_of(error)}.") from error
    records, refused, shared = list[AnyRecord](), list[Refusal](), dict[str, Any]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise Malformed("it is not a JSON object")
            record = record_type.read(data, line)
        except (ValueError, RecursionError) as error:
            refused.append(Refusal(path / f"line {number}", reason_of(error), record_type.advice))
            continue
        for parts in (data, data["asked"]):  # what most records have in common is kept once
            parts |= {name: shared.setdefault(repr(part), part) for name, part in parts.items() if type(part) is dict}
        records.append(record)
    return Found(records, refused)


def read_records(source: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a folder or of a packed file, and what is refused; raise MixedRecords as they ask."""
    stored = read_packed(source, record_type) if source.is_file() else Store(source, record_type).find()
    check_together(source, record_type, stored.records)
    return stored


def copy_records(records: Sequence[AnyRecord], store: Store[AnyRecord], progress: Callable[[int, int], None]) -> int:
    """Copy the records that a folder does not have yet, and return how many; `progress` hears how many are done."""
    new = [record for record in records if not store.path(record.id).exists()]
    for done, record in enumerate(new, 1):
        store.write(record, durable=False)
        progress(done, len(new))
    return len(new)
