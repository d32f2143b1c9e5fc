"""A policy as arrays and JSON, and back, never pickle: its settings, its state and its file.

An argument that is a value of ours (a schedule, a scale, a radius) is described by a dict, and every constructor takes
such descriptions; all other arguments are JSON as they are. A file has a checksum and is refused if it is damaged; a
forger who recomputes the checksum is not refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from rarely._core.choice.confidence_radius import FUNCTION, Beta, beta_from, describe_beta
from rarely._core.choice.random_stream import RandomPlace, generator_from
from rarely._core.choice.rules import RULES, exploration_from
from rarely._core.covariance import FORMS, CovarianceFactory
from rarely._core.errors import InvalidInput, RarelyError, SnapshotError
from rarely._core.growable_array import GrowingTuple
from rarely._core.inputs.arm_blocks import scale_from
from rarely._core.inputs.forgetting import forgetting_from
from rarely._core.inputs.scaling import MAPS
from rarely._core.parts import Registry, is_own
from rarely._core.policies.ceilings import Ledger
from rarely._core.policies.learner import LEARNERS, learner_from
from rarely._core.policies.monitor import Expectations
from rarely._core.policies.options import limits_from, preset_from, training_from
from rarely._core.policies.state import ArmStats, PolicyEvent, PolicyState, UpdateRecord
from rarely._core.saving.fields import Fields
from rarely._core.schedules import SCHEDULES, schedule_from
from rarely._core.types import Arrays

if TYPE_CHECKING:
    from rarely._core.saving.archive import Archive

_LATER = {"EnsemblePolicy": "rarely.ensembles", "KernelUCB": "rarely.theory.kernel_ucb"}
POLICIES: Registry[Any] = Registry("a policy", later=_LATER)  # every kind of policy, the package's and the user's
WRAPPERS: Registry[Any] = Registry("a wrapper", later={"FramePolicy": "rarely.frames.policy"})
"""What other packages put around a policy and save in its file; its `around` takes the policy and what was saved."""
MODELS: dict[str, Callable[[Any, Any, Arrays], Any]] = {}
"""How a model that is code is restored, by its package: of the one given, what was saved, and the file's arrays."""
CODE = {"model": "rarely.torch", "estimator": "rarely.ensembles"}
"""Arguments that are code, and the packages that are imported for them where a file names none."""
_COUNTS = ("learned", "lost", "most_arms")  # whole numbers of a state, as files hold them
_MISFITS = (RarelyError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What constructors, and the parts of a policy, raise for values that no policy saves."""
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "schedule": schedule_from,
    "beta": beta_from,
    "forgetting": forgetting_from,
    "context_scale": scale_from,
    "exploration": exploration_from,
    "preset": preset_from,
    "training": training_from,
    "limits": limits_from,
    "learner": learner_from,
}
_ENCODERS: dict[str, Callable[[Any], Any]] = {"beta": describe_beta, "model": lambda model: model.settings()}


def decoded(name: str, value: Any) -> Any:
    """Return an argument of a constructor from its description; what is not a dict is the argument itself.

    >>> decoded("beta", 0.5), decoded("exploration", {"epsilon": 0.1})
    (0.5, Mixture(epsilon=0.1))
    """
    if name not in _DECODERS or not isinstance(value, dict):
        return value
    try:
        return _DECODERS[name](value)
    except RarelyError:
        raise
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput(f"{name} must be what settings() describes; got {value!r} ({error}).") from None


def encoded(settings: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments as JSON.

    >>> from rarely import Mixture
    >>> encoded({"dim": 2, "exploration": Mixture(0.1)})
    {'dim': 2, 'exploration': {'epsilon': 0.1}}
    """

    def described(name: str, value: Any) -> Any:
        if name in _ENCODERS and value is not None:
            return _ENCODERS[name](value)
        return value.describe() if hasattr(value, "describe") else value

    return {name: described(name, value) for name, value in settings.items()}


def content_of(state: PolicyState, factory: CovarianceFactory) -> tuple[dict[str, Any], Arrays]:
    """Return a state as numbers and arrays, for `restored_state`."""
    current, clock = state.current, state.clock
    parts = {
        "learner": current.learner.state(),
        "own": (None, {}) if current.override is None else current.override.state(),
        "covariance": factory.state(current.covariance),
        "history": state.history.state(),
    }
    of_clock = ("version", "due_round", "base_round", "base_log_det")
    numbers: dict[str, Any] = {name: getattr(clock, name) for name in of_clock}
    numbers |= {name: getattr(state, name) for name in _COUNTS}
    numbers |= {"generator": state.random.state, "radius": current.radius, "extra_versions": clock.budget.extra}
    numbers |= {name: [each.describe() for each in getattr(state, name)] for name in ("updates", "events")}
    numbers |= {name: getattr(state, name).describe() for name in ("arm_stats", "expectations", "reader")}
    if state.ledger is not None:
        parts["ledger"] = state.ledger.state()
    arrays = {f"{part}.{name}": array for part, (_, own) in parts.items() for name, array in own.items()}
    return numbers | {part: fields for part, (fields, _) in parts.items()}, arrays


def restored_state(
    new: PolicyState, saved: Fields, factory: CovarianceFactory
) -> tuple[PolicyState, np.random.Generator]:
    """Return the saved state and its generator; `new` is the state of a policy made with the saved settings."""
    current = new.current
    history = new.history.restored(saved.inner("history"), missing=new.reader.missing)
    learner, override = current.learner.restored(saved.inner("learner")), None
    saved.check(learner.dim == new.reader.dim, f"a learner of {new.reader.dim} numbers in a context")
    if not is_own(type(learner)):
        learner.assess(history.contexts[-1:])  # whose arrays fit each other only its author knows
    if not saved.is_null("own"):
        if current.override is None:
            wrong = "scores of single arms, which a policy with its settings does not keep"
            raise SnapshotError(f"holds {wrong}. Use a backup.")
        override = current.override.restored(saved.inner("own"))
    current = replace(
        current,
        learner=learner,
        covariance=factory.restored(learner.widths, saved.inner("covariance")),
        radius=saved.number("radius", 0.0),
        override=override,
    )
    generator = generator_from(saved.value("generator"))
    state = PolicyState(
        current,
        new.clock.restored(saved, history.rounds),
        history,
        RandomPlace(generator.bit_generator.state),
        new.reader.restored(saved.inner("reader")),
        GrowingTuple(saved.of("updates", tuple[UpdateRecord, ...])),
        saved.of("arm_stats", ArmStats),
        events=saved.of("events", tuple[PolicyEvent, ...]),
        expectations=saved.of("expectations", Expectations),
        ledger=Ledger.restored(saved.inner("ledger"), new.reader.dim) if "ledger" in saved else None,
        **{name: saved.whole(name) for name in _COUNTS},
    )
    fits = state.learned <= history.arrived and max(state.clock.base_round, state.clock.due_round) <= history.rounds
    saved.check(fits, "no more rewards that were learned from than arrived, and a batch that has begun")
    return state, generator


def load(path: str | os.PathLike[str], *, beta: Beta | None = None, model: Any = None) -> Any:
    """Return the policy that `save` wrote, with the same future bit for bit (in the same environment).

    A file that is damaged, or was written by a later version, is refused with a `SnapshotError`.

    Parameters
    ----------
    path
        The file.
    beta
        The function, where the policy was made with one: a file cannot hold it.
    model
        What the policy was made with, if that is code: the torch module, or `rarely.torch.Module`, of which the file
        has the weights alone; or the estimator of an `EnsemblePolicy`, which a file names only if it is harmless.
        Several in a list are tried in order; a policy that needs none leaves them aside.

    Examples
    --------
    >>> import os, tempfile
    >>> from rarely import LinUCB, load
    >>> policy = LinUCB(dim=1, seed=0)
    >>> _ = policy.select([[1.0], [2.0]])
    >>> path = os.path.join(tempfile.mkdtemp(), "policy.rarely")
    >>> policy.save(path)
    >>> load(path).fingerprint() == policy.fingerprint()
    True
    """
    from rarely._core.saving import archive  # only here, because importing it takes long

    return restore(archive.read(path), os.fspath(path), beta, model)


def restore(saved: Archive, name: Any, beta: Beta | None = None, model: Any = None) -> Any:
    """Return the policy of an archive; `name` is that of the file in errors."""
    wrapper = saved.header.pop("wrapper", None)
    settings = saved.header.get("settings")
    arguments = settings if isinstance(settings, dict) else {}
    described, others = arguments.get("beta"), {} if beta is None else {"beta": beta}
    if described == FUNCTION and beta is None:
        raise InvalidInput(
            "this policy's beta is a function, which a file cannot hold: give it to load(path, beta=...)."
        )
    if "beta" in arguments and described != FUNCTION and beta is not None:
        raise InvalidInput(
            f"this policy was saved with beta = {described}; beta is given to load() only for a function."
        )
    code = {argument: arguments[argument] for argument in CODE if isinstance(arguments.get(argument), dict)}
    if not code and not isinstance(model, list | None):
        raise InvalidInput("model is given to load() for a policy that was saved with one.")
    try:
        for argument, described in code.items():
            others[argument] = _restored_model(model, described, CODE[argument], saved.arrays)
        with np.errstate(all="ignore"):  # numbers that no policy has may overflow before they are refused
            policy = _restored(saved, others)
        return policy if wrapper is None else WRAPPERS[wrapper["kind"]].around(policy, wrapper)
    except SnapshotError as error:
        raise SnapshotError(f"{name} {error}") from error
    except _MISFITS as error:
        raise SnapshotError(
            f"{name} was written by rarely {saved.version} and altered, or by a "
            f"class that is not the one imported here: its parts do not fit ({type(error).__name__}: {error}). "
            "Use a backup."
        ) from error


def _restored_model(model: Any, described: dict[str, Any], package: str, arrays: Arrays) -> Any:
    """Return the model of a saved policy, which its package makes; a file may have no other package imported."""
    package = described.get("package", package)
    if package not in MODELS and package in CODE.values():
        import_module(package)  # which adds itself
    if package not in MODELS:
        raise SnapshotError(f"holds a model of {package!r}; import that package before loading.")
    refused = []
    for one in [*model, None] if isinstance(model, list) else [model]:
        try:
            return MODELS[package](one, described, arrays)
        except SnapshotError as error:
            refused.append(error)
    raise refused[0]


def _restored(opened: Archive, others: dict[str, Any]) -> Any:
    """Return the policy of an archive, made with `others` that it cannot hold; errors continue after the path."""
    saved = Fields("", opened.header, opened.arrays)
    name, settings = saved.text("policy"), saved.value("settings")
    _check_imported(name, settings, opened.header)
    if is_own(POLICIES[name]):
        _check_sizes(settings, opened.arrays)
    arguments = settings | others
    policy = POLICIES[name](**arguments)
    policy._state, policy._scratch = restored_state(policy._state, saved, policy._factory)
    policy._seed = settings.get("seed")
    saved.finish()
    return policy


def _check_imported(policy: str, settings: Any, header: dict[str, Any]) -> None:
    """Refuse a file that names a class which is not imported: a policy, or one of its parts."""
    settings, covariance = settings if isinstance(settings, dict) else {}, header.get("covariance")
    learner, schedule = settings.get("learner"), settings.get("schedule")
    while isinstance(schedule, dict) and "schedule" in schedule:
        schedule = schedule["schedule"]
    maps = [settings.get("context_scale"), *(learner.values() if isinstance(learner, dict) else ())]
    form = covariance.get("form") if isinstance(covariance, dict) else None
    parts: list[tuple[str, Any, Registry[Any]]] = [
        ("policy", {"kind": policy}, POLICIES),
        ("schedule", schedule, SCHEDULES),
        ("choice rule", settings.get("exploration"), RULES),
        ("learner", learner, LEARNERS),
        ("covariance", {"kind": form}, FORMS),
        *(("map of contexts", each, MAPS) for each in maps),
    ]
    for part, described, registry in parts:
        name = described.get("kind") if isinstance(described, dict) else None
        if name not in (None, "none") and name not in registry:
            raise SnapshotError(
                f"holds a {part} of kind {name!r}, which is not imported here; if the class is your own, import its "
                "module before loading."
            )


def _check_sizes(settings: dict[str, Any], arrays: Arrays) -> None:
    """Refuse settings by which the constructor would allocate larger arrays than the saved ones."""
    dim, names = settings["dim"], ["history.contexts"]
    fits = arrays[names[0]].shape[1:] == (dim,)
    if settings.get("hidden") is not None:
        hidden, depth = settings["hidden"], settings["depth"]
        names += [f"learner.initial{i}" for i in range(min(depth, len(arrays)))]
        shapes = [arrays[name].shape for name in names[1:] if name in arrays]
        fits &= len(shapes) == depth and all(ins >= (hidden if i else dim) for i, (_, ins) in enumerate(shapes))
        fits &= all(outs == hidden for outs, _ in shapes[:-1])
    if not fits:
        raise SnapshotError(f"must have the settings dim, hidden and depth of {', '.join(names)}. Use a backup.")
