"""What a policy may spend and how it must share: ceilings with a price, floors, caps, holdouts and sticky arms.

    B   total    what may be spent in T rounds           c   costs    (K,)   what showing each arm takes of it
    p   price    worth of a unit of B                    ρ   rate     what is left of B for each round that is left

An arm's score is u·mean + |u|·bonus − v − p·c: the convex dual of bandits with knapsacks (Agrawal and Devanur 2016). At
each version, and whenever the rounds have doubled, the spending C(p) of the version in use is worked out on the latest
contexts, at prices that bisect on ρ. In between the price is C⁻¹(ρ_t), which follows what was spent and no reward. An
arm whose cost no longer fits is not shown. A `Ledger` is a value, which every round replaces.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np

from rarely._core.choice.rules import ChoiceRule, FixedShares, UniformChoice
from rarely._core.errors import (
    CeilingReached,
    InvalidInput,
    InvalidReward,
    InvalidWorth,
    ScheduleWarning,
    as_number,
    check_choice,
    check_whole,
    named_arguments,
    shown,
)
from rarely._core.growable_array import GrowingTuple, changed
from rarely._core.inputs.contexts import RoundContexts
from rarely._core.inputs.worth import Worth
from rarely._core.policies.select import DecideOne, ScoredArms, prepared, restricted, rounds_at_once, score
from rarely._core.policies.state import PolicyState
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays, BoolArray, Decision, Described

LATEST = 256  # rounds on whose contexts a price is solved, or fewer if their contexts have more than MOST_NUMBERS
MOST_NUMBERS = 2**18
GRID, BISECTIONS = 10, 14  # prices at which spending is worked out: a quarter of one another, then halving towards ρ
WIDEST = 512  # numbers in a context, at most, where costs are learned from contexts
ROUNDING = 1e-9  # part of a ceiling by which sums of costs may miss it
COUNTS = ("horizon", "begun", "solved", "capped")  # numbers of rounds in a ledger
SAID = ("gain", "cost", "spends")  # what was said of each arm of a latest round


@named_arguments
@dataclass(frozen=True, slots=True)
class Ceiling(Described):
    """What may be spent.

    Parameters
    ----------
    total
        The most that all arms shown may take together.
    per
        "horizon": in the rounds of the policy's schedule. Or a number of rounds, after each of which it begins anew.
    costs
        "known": each decision brings them, as `Worth(spends=…)`, and the total is never exceeded. "learned": they are
        told afterwards, as `observe(decision, rewards, costs=…)`, and the total is exceeded by one round's cost at
        most, if costs are told before the next round.

    Examples
    --------
    >>> from rarely import FixedGrid, LinUCB, Worth
    >>> policy = LinUCB(dim=1, schedule=FixedGrid(10, 2), seed=0).under(Ceiling(4.0))
    >>> arms = [policy.select([[1.0], [2.0]], worth=Worth(spends=[0.0, 1.0])).arm for _ in range(10)]
    >>> sum(arms)
    4
    """

    total: float
    per: int | Literal["horizon"] = "horizon"
    costs: Literal["known", "learned"] = "known"

    def __post_init__(self) -> None:
        if not 0 < as_number(self.total) < math.inf:
            raise InvalidInput(f"total must be a positive number, what may be spent; got {shown(self.total)}.")
        check_whole("per", self.per, 1, besides=("horizon",))
        check_choice("costs", self.costs, Literal["known", "learned"])


@named_arguments
@dataclass(frozen=True, slots=True)
class Shares(Described):
    """How decisions are shared among arms, whatever the policy thinks of them.

    Parameters
    ----------
    floors
        The least probability of arms by their number, f: an arm has f_k + (1 − Σf)·w_k of its own chance w_k.
    caps, period
        How often arms, by their number, may be shown in each `period` of rounds; without it, in all.
    holdout
        The share of users, by a hash of their id, for whom a lot decides.
    sticky
        For how many rounds a user keeps the arm, as long as it is there.
    salt
        Text that makes another policy hold out other users.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand(), seed=0).under(Shares(floors={0: 0.1}, sticky=100))
    >>> policy.select([[1.0], [2.0]], user="ann").probabilities
    array([0.1, 0.9])
    >>> policy.select([[9.0], [2.0]], user="ann").reason
    'sticky'
    """

    floors: Mapping[int, float] = field(default_factory=dict)
    caps: Mapping[int, int] = field(default_factory=dict)
    period: int | None = None
    holdout: float = 0.0
    sticky: int = 0
    salt: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.floors, Mapping) or not isinstance(self.caps, Mapping):
            raise InvalidInput(f"floors and caps must be dicts by arm; got {shown(self.floors)}, {shown(self.caps)}.")
        # JSON writes the number of an arm as text.
        floors, caps = (
            {int(arm) if isinstance(arm, str) and arm.isdecimal() else arm: value for arm, value in each.items()}
            for each in (self.floors, self.caps)
        )
        for arm in (*floors, *caps):
            check_whole("an arm", arm, 0)
        total = sum(map(as_number, floors.values()))
        if not all(0 <= as_number(share) <= 1 for share in floors.values()) or total > 1 + 1e-12:
            raise InvalidInput(f"floors must be probabilities that sum to at most 1; got {shown(floors)}.")
        for cap in caps.values():
            check_whole("a cap", cap, 0)
        check_whole("period", self.period, 1, besides=(None,))
        if not 0 <= as_number(self.holdout) <= 1:
            raise InvalidInput(f"holdout must be a share of users from 0 to 1; got {shown(self.holdout)}.")
        check_whole("sticky", self.sticky, 0)
        if not isinstance(self.salt, str):
            raise InvalidInput(f"salt must be text; got {shown(self.salt)}.")
        object.__setattr__(self, "floors", floors)
        object.__setattr__(self, "caps", caps)

    def holds_out(self, user: str) -> bool:
        """Return whether a lot decides for a user."""
        digest = blake2b(f"{self.salt}\n{user}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.holdout * 2**64

    def rule(self, own: ChoiceRule, arms: int) -> ChoiceRule:
        """Return the rule that leaves the floors to their arms."""
        if not self.floors:
            return own
        return FixedShares(own, tuple(self.floors.get(arm, 0.0) for arm in range(arms)))


class Recent(NamedTuple):
    """A round on which prices are solved."""

    rows: Array
    present: BoolArray
    worth: Array  # (3, K): gain, cost and what is spent, 0 for absent arms

    @property
    def spends(self) -> Array:
        """What showing each arm takes, (K,)."""
        return np.asarray(self.worth[2])


@dataclass(frozen=True, eq=False)
class Costs:
    """A ridge regression of costs on contexts, frozen within a version."""

    gram: Array  # (d + 1, d + 1), and moment (d + 1,): sums over the costs that were told
    moment: Array
    weights: Array
    largest: float = 0.0

    @classmethod
    def start(cls, dim: int) -> Costs:
        return cls(np.zeros((dim + 1, dim + 1)), np.zeros(dim + 1), np.zeros(dim + 1))

    def with_costs(self, contexts: Array, costs: Array) -> Costs:
        """Return the regression that knows these costs too."""
        x = np.column_stack([contexts, np.ones(len(contexts))])
        largest = max(self.largest, float(costs.max()))
        return Costs(self.gram + x.T @ x, self.moment + x.T @ costs, self.weights, largest)

    def refitted(self) -> Costs:
        """Return the regression of the next version."""
        ridge = 1e-3 * max(float(np.trace(self.gram)) / len(self.gram), 1e-12)
        weights = np.linalg.solve(self.gram + ridge * np.eye(len(self.gram)), self.moment)
        return Costs(self.gram, self.moment, np.asarray(weights, np.float64), self.largest)

    def of(self, rows: Array) -> Array:
        """Return the expected costs of contexts."""
        return np.asarray(np.maximum(rows @ self.weights[:-1] + self.weights[-1], 0.0))


@dataclass(frozen=True, eq=False)
class Ledger:
    """Ceiling and shares of a policy, and what was spent and shown so far."""

    ceiling: Ceiling | None
    shares: Shares
    horizon: int  # rounds of a period of the ceiling
    begun: int = 0  # rounds before the period of the ceiling
    spent: float = 0.0
    curve: Array = field(default_factory=lambda: np.zeros((2, 1)))
    """(2, m): rising prices, and what a round spends at each of them."""
    solved: int = 0  # rounds when the price was solved
    rounds: GrowingTuple[Recent | tuple[Array, Array]] = field(default_factory=GrowingTuple)
    """The latest rounds, or contexts and scores of such as had all arms; prices are solved on the last `used`."""
    used: int = 0
    shown: Mapping[int, int] = field(default_factory=dict)
    """How often capped arms were shown in the period of the caps, which began after `capped` rounds."""
    capped: int = 0
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The arm of each user and the round in which it was drawn. All ledgers of a policy share and write it: an entry of
    a round that is still to come, which an undone call has left, does not count."""
    waiting: Mapping[int, float] = field(default_factory=dict)  # reserved for rounds whose costs were not told yet
    costs: Costs | None = None

    def at(self, round: int) -> Ledger:
        """Return the ledger of the period that a round belongs to."""
        out, period = self, self.shares.period
        if self.ceiling is not None and self.ceiling.per != "horizon" and round > self.begun + self.horizon:
            whole = (round - 1 - self.begun) // self.horizon
            out = replace(out, begun=self.begun + whole * self.horizon, spent=0.0)
        if period is not None and round > self.capped + period:
            out = replace(out, capped=self.capped + (round - 1 - self.capped) // period * period, shown={})
        return out

    @property
    def left(self) -> float:
        """What may still be spent, less what is reserved."""
        assert self.ceiling is not None
        return self.ceiling.total - self.spent - sum(self.waiting.values())

    def rate(self, round: int) -> float:
        """Return what is left for each round, this one included."""
        return max(0.0, self.left) / max(1, self.rounds_left(round))

    def rounds_left(self, round: int) -> int:
        """Return how many rounds the period of the ceiling has left, this one included."""
        return self.begun + self.horizon - round + 1

    @property
    def recent(self) -> list[Recent]:
        """The rounds on which prices are solved."""
        return [
            each if isinstance(each, Recent) else Recent(each[0], np.ones(len(each[0]), np.bool_), each[1][3:, 0])
            for each in self._latest
        ]

    @property
    def _latest(self) -> tuple[Recent | tuple[Array, Array], ...]:
        return self.rounds[len(self.rounds) - self.used :]

    @property
    def by_known_costs(self) -> bool:
        """Whether nothing but a ceiling on known costs has a say."""
        return self.ceiling is not None and self.ceiling.costs == "known" and self.shares == Shares()

    def price(self, round: int) -> float:
        """Return C⁻¹(ρ), the price at which the latest contexts would spend what is left for a round."""
        prices, spending = self.curve
        return float(np.interp(self.rate(round), spending[::-1], prices[::-1]))

    def user_arm(self, user: str | None, round: int, present: BoolArray) -> int | None:
        """Return the arm that a user keeps in this round."""
        arm, drawn = self.kept.get(user or "", (0, round))
        valid = drawn < round <= drawn + self.shares.sticky and arm < len(present) and present[arm]
        return arm if valid else None

    def costs_of(self, rounds: RoundContexts) -> Array | None:
        """Return what each arm of a single round takes of the ceiling, (K,), 0 for absent arms."""
        given = None if rounds.worth is None else rounds.worth.spends
        if self.ceiling is None or self.ceiling.costs == "learned":
            if given is not None:
                why = "there is no ceiling" if self.ceiling is None else "the ceiling learns its costs"
                raise InvalidWorth(f"spends of a worth must be left out, because {why}; see Policy.under.")
            if self.ceiling is None:
                return None
            assert self.costs is not None
            out = np.zeros(rounds.present.shape[1])
            out[rounds.present[0]] = self.costs.of(rounds.rows(0, 1))
            return out
        if given is None:
            wanted = "worth=Worth(spends=…), or Ceiling(costs='learned')"
            raise InvalidWorth(f"a ceiling needs what each arm costs: {wanted}.")
        costs: Array = given[0]
        return costs

    def fitting(self, costs: Array, present: BoolArray) -> BoolArray:
        """Return which arms may be shown with what is left."""
        assert self.ceiling is not None
        slack = ROUNDING * self.ceiling.total
        if self.ceiling.costs == "learned":
            return present & (self.left > slack)
        if present.any() and costs[present].min() > self.ceiling.total:
            least = float(costs[present].min())
            raise InvalidWorth(f"a ceiling must have room for one round; its total is {self.ceiling.total:g}, and the "
                               f"cheapest arm costs {least:g}.")  # fmt: skip
        # Rounding must not keep the last arm that fits, nor may it exceed the total.
        return present & (costs <= self.left + slack) & (self.spent + costs <= self.ceiling.total * (1 + ROUNDING))

    def after(self, round: int, arm: int, costs: Array | None, recent: Recent | None, user: str | None) -> Ledger:
        """Return the ledger after a round that showed an arm; `user` is one who keeps it."""
        change: dict[str, Any] = {}
        if costs is not None and self.ceiling is not None and recent is not None:
            if self.ceiling.costs == "known":
                change["spent"] = self.spent + float(costs[arm])
            else:
                assert self.costs is not None
                change["waiting"] = {**self.waiting, round: max(float(costs[arm]), self.costs.largest)}
            change |= self._with(recent, recent.rows.size)
        if arm in self.shares.caps:
            change["shown"] = {**self.shown, arm: self.shown.get(arm, 0) + 1}
        if user is not None:
            self.kept[user] = (arm, round)
        return replace(self, **change)

    def _with(self, latest: Recent | tuple[Array, Array], numbers: int) -> dict[str, Any]:
        """Return what changes with one more of the latest rounds; those that are too many go now and then."""
        rounds = self.rounds if len(self.rounds) < 2 * LATEST else GrowingTuple(self._latest)
        most = LATEST if numbers * LATEST <= MOST_NUMBERS else max(1, MOST_NUMBERS // numbers)
        return {"rounds": rounds.plus(latest), "used": min(self.used + 1, most)}

    def charged(self, spent: float, rows: Array, scores: Array) -> Ledger:
        """Return the ledger after a round of all arms, (K, d), with these scores, (6, 1, K)."""
        return changed(self, spent=spent, **self._with((rows, scores), rows.size))

    def with_costs(self, rounds: Any, contexts: Array, costs: Array) -> Ledger:
        """Return the ledger after the costs of some rounds were told."""
        assert self.costs is not None
        waiting, spent = dict(self.waiting), self.spent
        for round, cost in zip(rounds.tolist(), costs.tolist(), strict=True):
            if round not in waiting:
                raise InvalidReward(f"a cost must belong to a round that waits for one; round {round} does not.")
            del waiting[round]
            spent += cost if round > self.begun else 0.0
        return replace(self, waiting=waiting, spent=spent, costs=self.costs.with_costs(contexts, costs))

    def without(self, rounds: Collection[int], last: int) -> Ledger:
        """Return the ledger with zeros for contexts of some rounds up to the `last`, of which no user keeps an arm.

        The rounds stay among the latest, so that each one's number is known the next time.
        """
        kept = {user: entry for user, entry in self.kept.items() if entry[1] not in rounds}
        latest = [
            each._replace(rows=np.zeros_like(each.rows)) if round in rounds else each
            for round, each in enumerate(self.recent, last - self.used + 1)
        ]
        return replace(self, rounds=GrowingTuple(latest), kept=kept)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers: dict[str, Any] = {name: getattr(self, name) for name in ("spent", *COUNTS)}
        numbers |= {"ceiling": self.ceiling and self.ceiling.describe(), "shares": self.shares.describe()}
        numbers |= {"kept": [[user, *each] for user, each in sorted(self.kept.items())]}
        numbers |= {name: [*getattr(self, name).items()] for name in ("shown", "waiting")}
        arrays: Arrays = {"curve": self.curve}
        if self.recent:
            rows, present, worth = zip(*self.recent, strict=True)
            arrays |= {"rows": np.concatenate(rows), "present": np.concatenate(present)}
            arrays |= dict(zip(SAID, np.concatenate(worth, axis=1), strict=True))
            arrays["arms"] = np.array([len(each) for each in present])
        if self.costs is not None:
            numbers["largest"] = self.costs.largest
            arrays |= {name: getattr(self.costs, name) for name in ("gram", "moment", "weights")}
        return numbers, arrays

    @classmethod
    def restored(cls, saved: Fields, dim: int) -> Ledger:
        with saved:
            ceiling, shares = saved.value("ceiling"), Shares(**saved.value("shares"))
            numbers: dict[str, Any] = {name: saved.whole(name) for name in COUNTS}
            numbers |= {"spent": saved.number("spent"), "curve": saved.array("curve", (2, None))}
            recent, costs, width = list[Recent](), None, dim + 1
            if "rows" in saved:
                arms = saved.array("arms", (None,), "int")
                total, ends = int(arms.sum()), np.cumsum(arms)[:-1]
                present = np.split(saved.array("present", (total,), "bool"), ends)
                worth = np.split(np.array([saved.array(name, (total,)) for name in SAID]), ends, axis=1)
                counts = np.cumsum([each.sum() for each in present])[:-1]
                recent = [*map(Recent, np.split(saved.array("rows", (None, dim)), counts), present, worth)]
            if "gram" in saved:
                vectors = saved.array("moment", (width,)), saved.array("weights", (width,))
                costs = Costs(saved.array("gram", (width, width)), *vectors, saved.number("largest"))
            kept = {user: (int(arm), int(drawn)) for user, arm, drawn in saved.value("kept")}
            lists: dict[str, Any] = {name: dict(map(tuple, saved.value(name))) for name in ("shown", "waiting")}
            made = Ceiling(**ceiling) if ceiling else None
            saved.check((costs is not None) == (made is not None and made.costs == "learned"), "costs that are learned")
            numbers |= {"rounds": GrowingTuple(recent), "used": len(recent)}
            return cls(made, shares, **numbers, kept=kept, costs=costs, **lists)


def opened(ceiling: Any, shares: Any, state: PolicyState) -> Ledger:
    """Return the ledger of a policy that begins to keep to a ceiling, or to shares."""
    ceiling, shares = (shares, ceiling) if isinstance(ceiling, Shares) else (ceiling, shares)
    if not (isinstance(ceiling, Ceiling | None) and isinstance(shares, Shares | None)):
        came = f"{shown(ceiling)} and {shown(shares)}"
        raise InvalidInput(f"a policy goes under one Ceiling, one Shares or both; got {came}.")
    horizon, rounds, dim = state.clock.budget.horizon or 0, state.history.rounds, state.reader.dim
    if ceiling is not None and ceiling.per != "horizon":
        horizon = int(ceiling.per)
    elif ceiling is not None:
        if horizon <= rounds:
            wanted = "a schedule with a horizon that is ahead, such as Paced(horizon, batches), or per=rounds"
            raise InvalidInput(f"a Ceiling per horizon needs {wanted}; the horizon is {horizon or None}.")
        horizon -= rounds
    learns = ceiling is not None and ceiling.costs == "learned"
    if learns and dim > WIDEST:
        raise InvalidInput(f"costs are learned from contexts of at most {WIDEST} numbers; got {dim}. Give known costs.")
    costs = Costs.start(dim) if learns else None
    return Ledger(ceiling, shares or Shares(), horizon, rounds, solved=rounds, capped=rounds, costs=costs)


# --- deciding


def check_user(user: Any, ledger: Ledger | None) -> Any:
    """Return the id of a user, or those of n rounds; refuse what is not text, or missing where shares go by users."""
    if isinstance(user, list):
        return [check_user(each, ledger) for each in user]
    if user is None and (ledger is None or not (ledger.shares.holdout or ledger.shares.sticky)):
        return None
    if not isinstance(user, str) or not user:
        raise InvalidInput(f"user must be the id of a user, text that is not empty; got {shown(user)}.")
    return user


def within_limits(
    state: PolicyState, rounds: RoundContexts, user: str | None, ledger: Ledger
) -> tuple[PolicyState, RoundContexts, str, float, Array | None]:
    """Return what is to be decided in a round: state with its rule, rounds in prices, the reasons, p and the costs."""
    t, present, reasons = state.history.rounds + 1, rounds.present[0].copy(), list[str]()
    shares, rule, arms = ledger.shares, state.current.rule, len(present)
    over = [arm for arm, cap in shares.caps.items() if ledger.shown.get(arm, 0) >= cap and arm < arms and present[arm]]
    if over:
        present[over] = False
        reasons.append("cap")
    costs, price = ledger.costs_of(rounds), 0.0
    if costs is not None:
        fits = ledger.fitting(costs, present)
        reasons += ["ceiling"] * bool((fits != present).any())
        present, price = fits, ledger.price(t)
    if not present.any():
        why, offered = " and ".join(reasons), rounds.present[0]
        if costs is not None and offered.any():
            why += f" ({max(ledger.left, 0.0):g} is left, and the cheapest takes {costs[offered].min():g})"
        raise CeilingReached(f"no arm may be shown in round {t}: {why} left none. Offer one that is free.")
    script: Any = rule if hasattr(rule, "instead") else None
    kept = ledger.user_arm(user, t, present)
    if kept is not None and (script is None or script.next == kept):  # else the round in which it was drawn was erased
        present &= np.arange(arms) == kept
        reasons.append("sticky")
    elif user is not None and shares.holdout and shares.holds_out(user):
        rule = UniformChoice()
        reasons.append("holdout")
    else:
        rule = shares.rule(rule, arms)
    if script is not None:  # a record that is followed has its arms already, and takes as many numbers for them
        script.draws, rule = rule.draws, script
    if rule is not state.current.rule:
        state = changed(state, current=changed(state.current, rule=rule))
    left = rounds
    if not np.array_equal(present, rounds.present[0]):
        left = restricted(rounds, present)
    if price and costs is not None:
        worth = rounds.worth or Worth(np.ones((1, arms)), np.zeros((1, arms)))
        left = replace(left, worth=Worth(worth.gain, worth.cost + price * costs))
    return state, left, " ".join(reasons), price, costs


def decide_within(
    state: PolicyState, rounds: RoundContexts, user: str | None, decide: DecideOne
) -> tuple[PolicyState, Decision]:
    """Return the state after one round that keeps to the ledger, and its decision."""
    t = state.history.rounds + 1
    ledger = state.ledger.at(t)
    ready, left, reason, price, costs = within_limits(state, rounds, user, ledger)
    after, decision = decide(ready, left)
    arms = rounds.present.shape[1]
    worth, recent = None if rounds.worth is None else rounds.worth[0], None
    if costs is not None:
        worth = Worth(np.ones(arms), np.zeros(arms)) if worth is None else worth
        worth = replace(worth, spends=costs)
        recent = Recent(rounds.rows(0, 1), rounds.present[0].copy(), np.array([worth.gain, worth.cost, costs]))
    keeps = user if ledger.shares.sticky and "sticky" not in reason else None
    ledger = ledger.after(t, int(decision.arm), costs, recent, keeps)
    if after.current.rule is not state.current.rule:
        after = changed(after, current=changed(after.current, rule=state.current.rule))
    known = price if costs is not None else None
    return repriced_in_time(changed(after, ledger=ledger)), changed(decision, worth=worth, price=known, reason=reason)


def repriced_in_time(state: PolicyState) -> PolicyState:
    """Return the state with its price solved anew, if rounds have doubled since that was done."""
    ledger: Ledger = state.ledger
    doubled = state.history.rounds - ledger.begun >= 2 * max(1, ledger.solved - ledger.begun)
    return repriced(state) if doubled and ledger.used else state


def repriced(state: PolicyState, *, new: bool = False) -> PolicyState:
    """Return the state with C(p) of the version in use on the latest contexts, worked out by bisection on ρ.

    A `new` version expects costs anew, too, where they are learned.
    """
    ledger: Ledger = state.ledger
    if new and ledger.costs is not None:
        ledger = replace(ledger, costs=ledger.costs.refitted())
    if ledger.shares.sticky:
        oldest = state.history.rounds - ledger.shares.sticky
        ledger = replace(ledger, kept={user: entry for user, entry in ledger.kept.items() if entry[1] >= oldest})
    recent, count = ledger.recent, ledger.used
    if ledger.ceiling is None or not count:
        return changed(state, ledger=ledger)
    scored = _scored(state, recent, ledger.costs)
    rule = ledger.shares.rule(getattr(state.current.rule, "instead", state.current.rule), scored[0].means.shape[1])

    def spending(price: float) -> float:
        total = 0.0
        for part in scored:
            assert part.worth is not None
            priced = replace(part, worth=Worth(part.worth.gain, part.worth.cost + price * part.worth.spends))
            total += float((priced.probabilities(rule) * part.worth.spends).sum())
        return total / count

    cheapest = [float(each.spends[each.present].min()) for each in recent]
    least = sum(cheapest) / count
    found: dict[float, float] = {0.0: spending(0.0)}
    largest = max(float(each.spends.max()) for each in recent)
    if found[0.0] > least and largest > 0:
        worths: Any = ((each, each.worth) for each in scored)
        scale = max(float(np.nanmax(np.abs(w.of(each.means) + np.abs(w.gain) * each.bonuses))) for each, w in worths)
        high = float(max(scale, 1e-12) / largest)
        while found.setdefault(high, spending(high)) > least * (1 + 1e-6) and high * largest < 1e9 * scale:
            high *= 4.0
        for k in range(1, GRID):
            found[high / 4**k] = spending(high / 4**k)
        rate = ledger.rate(state.history.rounds + 1)
        low = max((price for price, spent in found.items() if spent > rate), default=0.0)
        top = min((price for price, spent in found.items() if spent <= rate), default=high)
        for _ in range(BISECTIONS if found[0.0] > rate else 0):
            middle = (low + top) / 2
            found[middle] = spending(middle)
            low, top = (middle, top) if found[middle] > rate else (low, middle)
    prices = np.array(sorted(found))
    curve = np.array([prices, np.minimum.accumulate([found[price] for price in prices])])
    if not hasattr(state.current.rule, "instead"):  # rounds of a record are past
        _warn_of_shortage(ledger, state.history.rounds + 1, min(cheapest))
    return changed(state, ledger=replace(ledger, curve=curve, solved=state.history.rounds))


def _warn_of_shortage(ledger: Ledger, round: int, least: float) -> None:
    """Warn where no arm of the latest rounds is as cheap as each round that is left may be, unless that was known."""
    left, rate, rounds = ledger.left, ledger.rate(round), ledger.rounds_left(round)
    if rounds > 0 and least > rate * (1 + 1e-6) and ledger.curve[1, -1] <= rate:
        warnings.warn(
            f"the ceiling is spent early: {max(left, 0.0):g} is left for {rounds} rounds, and no arm of the latest "
            f"{ledger.used} takes less than {least:g}, so it lasts for {max(left, 0.0) / least:.0f} rounds at most; "
            "then `select` raises CeilingReached. Offer an arm that takes less, or raise the total.",
            ScheduleWarning,
            stacklevel=3,
        )


def _scored(state: PolicyState, recent: list[Recent], costs: Costs | None) -> list[ScoredArms]:
    """Return what the version in use thinks of the latest rounds, with what they are worth and spend."""
    width = max(len(each.present) for each in recent)
    present, columns = np.zeros((len(recent), width), np.bool_), np.zeros((3, len(recent), width))
    for i, each in enumerate(recent):
        spends = each.spends
        if costs is not None:
            spends = np.zeros(len(each.present))
            spends[each.present] = costs.of(each.rows)
        present[i, : len(spends)], columns[:, i, : len(spends)] = each.present, (*each.worth[:2], spends)
    asked: Any = ([each.rows for each in recent], present, width, False, bool(present.all()), True, Worth(*columns))
    rounds, current = RoundContexts(*asked), state.current.fork()
    with np.errstate(all="ignore"):
        parts = [score(prepared(current, p), p) for p in rounds.parts(lambda: rounds_at_once(current, width))]
    if len(parts) == 1 or current.rule.joint:
        return parts
    names = ("means", "bonuses", "rounding_scale")
    joined: Any = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return [replace(parts[0], **joined, worth=Worth(*columns))]
