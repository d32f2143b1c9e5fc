"""What an open study can be asked about itself; nothing here writes to the record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Self

from rarely.core.types import Array
from rarely.offpolicy import DecisionLog
from rarely.study.backups import back_up
from rarely.study.checking import Verification, verify
from rarely.study.contrasts import Contrast, contrasts
from rarely.study.decisions import Record, record_of
from rarely.study.diagnosis import Finding, diagnose
from rarely.study.errors import InvalidStudy, UnknownDecision
from rarely.study.events import Event
from rarely.study.exporting import decision_log, records, shadow_log
from rarely.study.registration import check_registration, write_registration
from rarely.study.replaying import Replay, replay
from rarely.study.session import Session
from rarely.study.settings import StudySettings
from rarely.study.status import Status, status_of
from rarely.study.storage import VersionRow
from rarely.study.texts import check_id


class Inspection:
    """The reading half of `Study`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def close(self) -> None:
        """Give the database back; the study can be opened again."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        position = self._session.position
        return f"<Study {self.name!r}: {position.rounds} decisions, version {position.version}, event {position.seq}>"

    @property
    def name(self) -> str:
        """The name of the study."""
        return self._session.name

    @property
    def failure(self) -> str:
        """Why the study does no more work and must be opened again; "" while all is well."""
        return self._session.failure

    @property
    def settings(self) -> StudySettings:
        """What it was created with."""
        return self._session.settings

    @property
    def dim(self) -> int:
        """Numbers in a context, as the policy takes it."""
        return self._session.dim

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch, as of the last call that this process made."""
        return self._session.due

    def status(self) -> Status:
        """Where the study stands."""
        return status_of(self._session)

    def decision(self, id: str) -> Record:
        """All that the record says about a decision; `UnknownDecision` if there is none with this id."""
        with self._session.reading() as tables:
            event = tables.decision(self._session.row.study, check_id(id))
        if event is None:
            raise UnknownDecision(f"study {self.name!r} has no decision with id {id!r}.")
        return record_of(event, self.settings.arms)

    def decisions(self) -> Iterator[Record]:
        """All decisions on record, in order."""
        return records(self._session)

    def events(self, after: int = 0, last: int | None = None) -> Iterator[Event]:
        """The record itself, from the event behind `after` on."""
        return self._session.events(after, self.status().events if last is None else last)

    def versions(self) -> list[VersionRow]:
        """The published versions."""
        with self._session.reading() as tables:
            return tables.versions(self._session.row.study)

    def verify(self, head: str | None = None, seq: int | None = None) -> Verification:
        """Check the chain of all events, and the rows and snapshots that they name.

        Parameters
        ----------
        head, seq
            A hash that `status` told earlier, and the number of events that the record had then: has it been cut off or
            rewritten since?

        Returns
        -------
        Verification
            `bad` is the first event that is wrong, and `flaw` says what is.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Study
        >>> study = Study.create("memory://verify", "colours", policy=LinUCB(dim=1), arms=2)
        >>> noted, answer = study.status(), study.ask([[1.0], [2.0]])
        >>> study.verify(noted.head, noted.events).whole
        True
        """
        return verify(self._session, head, seq)

    def replay(self) -> Replay:
        """Train every version again from the record, and decide every round again; nothing is written.

        Returns
        -------
        Replay
            In the environment of the study hashes must be equal, and in another one the arms but for ties; `equal` says
            so.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Study
        >>> study = Study.create("memory://replay", "colours", policy=LinUCB(dim=1), arms=2)
        >>> receipt = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
        >>> study.update()
        'version'
        >>> study.replay().equal
        True
        """
        return replay(self._session)

    def log(self) -> DecisionLog:
        """The decisions and rewards as a `rarely.logs.DecisionLog`, for off-policy estimates and files.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Study
        >>> study = Study.create("memory://log", "colours", policy=LinUCB(dim=1), arms=2)
        >>> answer = study.ask([[1.0], [2.0]])
        >>> study.log()
        <DecisionLog: 1 rounds, 1 rewards missing>
        """
        return decision_log(self._session)

    def diagnose(self) -> list[Finding]:
        """What is wrong or could be better: (topic, "ok", "note" or "problem", what, advice)."""
        return list(diagnose(self._session))

    def shadow_log(self, version: int | None = None) -> tuple[DecisionLog, Array]:
        """What off-policy estimates of a shadow version need: `snips(*study.shadow_log())`.

        Parameters
        ----------
        version
            The number of a published version; None for the one that is in the shadow now.

        Returns
        -------
        tuple
            The decisions beside which it was scored, and (n, K): what it would have drawn from.
        """
        seq = self._session.position.shadow
        if version is not None:
            seq = next((row.snapshot for row in self.versions() if row.number == version), None)
        if seq is None:
            raise InvalidStudy(f"no version is in the shadow, and none has the number {version!r}.")
        return shadow_log(self._session, seq)

    def contrasts(self, *, level: float = 0.95, control: str | None = None) -> list[Contrast]:
        """Every arm against the control arm, with intervals that hold at all times.

        Parameters
        ----------
        level
            Of each interval alone; for a level of all of them together divide 1 − level by their number.
        control
            The arm to compare with; by default the one that the study was created with.

        Raises
        ------
        InvalidStudy
            If the study has no range of rewards, or a stage without an allocation limit.
        """
        return contrasts(self._session, level=level, control=control)

    def preregister(self, path: str | os.PathLike[str]) -> str:
        """Write settings, schedule, seed and the hash of version 0 to a file; its digest."""
        return write_registration(self._session, path)

    def check_registration(self, path: str | os.PathLike[str]) -> None:
        """Refuse if this is not the study that was registered in a file."""
        check_registration(self._session, path)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole database to a new file, as it stands now, and check the copy."""
        back_up(self._session, os.fspath(path))
