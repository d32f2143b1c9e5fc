"""The versions of a study: trained, published, approved, rolled back; each is an event with its actor and reason."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from rarely.core.errors import InvalidInput, RarelyError, check_positive
from rarely.study import publishing, steering
from rarely.study.errors import InvalidStudy
from rarely.study.inspecting import Inspection
from rarely.study.publishing import LEASE, holder_name
from rarely.study.texts import signed
from rarely.study.training import Job, Trained, train


class Governance(Inspection):
    """The part of `Study` that is about versions."""

    def update(self, *, force: bool = False, lease: float = LEASE, actor: str = "", reason: str = "") -> str:
        """Train the next version on the rewards that are settled, and publish it.

        Decisions of other threads and processes go on under the old version meanwhile.

        Returns
        -------
        str
            "version" if it decides from now on, "candidate" if a person must approve it first, "rejected" if the
            training did not lower the loss and the old version goes on.

        Raises
        ------
        StudyFull
            If the study has all its versions.
        StudyBusy
            If another trainer is at work.
        NothingToLearn
            If no reward came since the last update, none is due and `force` is not set.
        """
        job = self.begin_update(force=force, lease=lease, actor=actor, reason=reason)
        try:
            return self.finish_update(train(job), actor=actor, reason=reason)
        except BaseException:
            with suppress(RarelyError):  # the error of the training matters more
                publishing.release(self._session, job.token)
            raise

    def begin_update(
        self, *, force: bool = False, lease: float = LEASE, holder: str = "", actor: str = "", reason: str = ""
    ) -> Job:
        """The first part of `update`: cut the record, for `train` in this process or in another one.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Study, train
        >>> study = Study.create("memory://begin", "colours", policy=LinUCB(dim=1), arms=2)
        >>> receipt = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
        >>> job = study.begin_update()
        >>> trained = train(job)  # anywhere; both can be pickled
        >>> study.ask([[1.0], [2.0]]).version
        0
        >>> study.finish_update(trained)
        'version'
        """
        check_positive("lease", lease, "the seconds that a training may take")
        return publishing.begin(
            self._session,
            force=force,
            lease=lease,
            holder=holder or holder_name(),
            **signed(actor, reason),
        )

    def finish_update(self, trained: Trained, *, actor: str = "", reason: str = "") -> str:
        """The last part of `update`: record what `train` made."""
        if not isinstance(trained, Trained):
            raise InvalidInput(f"finish_update takes what train(job) returned; got {type(trained).__name__}.")
        if trained.study != self.name:
            raise InvalidStudy(f"this is study {self.name!r}; the version was trained for {trained.study!r}.")
        return publishing.finish(self._session, trained, **signed(actor, reason))

    def give_up_update(self, job: Job | Trained) -> None:
        """Give the lease of a training back that will not be finished."""
        publishing.release(self._session, job.token)

    def approve(self, *, actor: str, reason: str = "") -> int:
        """Publish the candidate, where a stage asks for approval.

        Parameters
        ----------
        actor, reason
            Who approves, and why. An approval without a name is refused.

        Returns
        -------
        int
            The number of the version, which decides from now on.

        Raises
        ------
        ApprovalNeeded
            If there is no candidate.
        StudyFull
            If the study has all its versions.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Stage, Study
        >>> stages = [Stage("main", approval=True)]
        >>> study = Study.create("memory://approve", "colours", policy=LinUCB(dim=1), arms=2, stages=stages)
        >>> receipt = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
        >>> study.update()
        'candidate'
        >>> study.approve(actor="ann", reason="data checked")
        1
        """
        return steering.approve(self._session, **signed(actor, reason))

    def dismiss(self, *, actor: str, reason: str = "") -> None:
        """Drop the candidate; the version in use goes on, and no version is spent.

        Raises
        ------
        ApprovalNeeded
            If there is no candidate.
        """
        steering.dismiss(self._session, **signed(actor, reason))

    def rollback(self, version: int, *, actor: str = "", reason: str = "") -> None:
        """Let an earlier version decide again.

        It keeps its number, and no version is spent. Decisions and rewards since then stay on record, and the next
        update learns from all of them.

        Parameters
        ----------
        version
            The number of a published version.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> from rarely.study import Study
        >>> study = Study.create("memory://rollback", "colours", policy=LinUCB(dim=1), arms=2)
        >>> receipt = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
        >>> study.update()
        'version'
        >>> study.rollback(0, actor="ann", reason="complaints")
        >>> study.ask([[1.0], [2.0]]).version
        0
        """
        steering.roll_back(self._session, version, **signed(actor, reason))

    def pin(self, *, actor: str = "", reason: str = "") -> None:
        """Keep the version in use: `update` raises `StudyPinned` until `unpin`."""
        steering.pin(self._session, True, **signed(actor, reason))

    def unpin(self, *, actor: str = "", reason: str = "") -> None:
        """Allow updates again."""
        steering.pin(self._session, False, **signed(actor, reason))

    def shadow(self, version: int | Literal["candidate"] | None, *, actor: str = "", reason: str = "") -> None:
        """Score another version beside the one in use.

        Its probabilities are logged with every decision, for `shadow_log`, and never affect an answer.

        Parameters
        ----------
        version
            "candidate", the number of a published version, or None to end it.

        Examples
        --------
        >>> from rarely import LinTS
        >>> from rarely.study import Study
        >>> study = Study.create("memory://beside", "colours", policy=LinTS(dim=1, seed=0), arms=2)
        >>> study.shadow(0)
        >>> answer = study.ask([[1.0], [2.0]], id="visit-1")
        >>> study.decision("visit-1").shadow.shape
        (2,)
        """
        steering.set_shadow(self._session, version, **signed(actor, reason))
