"""Cells that play nothing, for the tests of the engine: each does what its name says."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rarely_lab.engine.cell import Cell, LocalExecutor, run_cells
from rarely_lab.engine.record import MixedRecords, Record, Store


class ToyRecord(Record):
    kind: ClassVar[str] = "toy"

    @classmethod
    def check_together(cls, records, planned):
        sizes = {one["size"] for one in (*(record.asked for record in records), *planned)}
        if len(sizes) > 1:
            raise MixedRecords(f"it would hold sizes {' and '.join(map(str, sorted(sizes)))}.")


@dataclass(frozen=True)
class ToyCell(Cell):
    record_type: ClassVar[type[Record]] = ToyRecord
    shared_field: ClassVar[str] = "load"

    name: str = "plain"
    seed: int = 0
    size: int = 1
    load: Any = None
    """What Ray sends once."""

    @property
    def id(self) -> str:
        return f"{self.name}/seed{self.seed}"

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "seed": self.seed, "size": self.size}

    def work(self) -> float:
        return float(self.size)

    def portable(self) -> Any:
        if self.name == "unsendable":
            raise TypeError("a lock cannot be packed")
        return self.load

    def play(self) -> dict[str, Any]:
        value: Any = self.size * self.seed
        if self.name == "fails":
            raise ValueError("it rained")
        if self.name == "nan":
            value = float("nan")
        if self.name == "sleeps":
            time.sleep(0.1)
        if self.name in ("unlucky", "deadly"):  # killed as the system does when memory runs out: once, or always
            with open(self.load, "a", encoding="utf-8") as deaths:
                deaths.write("x")
            if self.name == "deadly" or Path(self.load).stat().st_size == 1:
                os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends it at once by either
        threads, load = os.environ.get("OPENBLAS_NUM_THREADS"), str(self.load)
        return {"value": value, "threads": threads, "load": load}


def toys(count: int = 4, name: str = "plain", **others: Any) -> list[ToyCell]:
    return [ToyCell(name, seed, **others) for seed in range(count)]


def store_at(folder: Path) -> Store[ToyRecord]:
    return Store(folder, ToyRecord)


def main(folder: str) -> None:
    """Play cells that sleep in two processes, as a command would."""
    import typer

    from rarely.console import guarded

    @guarded
    def command() -> None:
        run_cells(toys(40, "sleeps"), store_at(Path(folder)), LocalExecutor(2))

    try:
        command()
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    import toy_cells  # whose classes another process can import, unlike those of __main__

    toy_cells.main(sys.argv[1])
