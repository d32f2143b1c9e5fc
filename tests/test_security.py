"""SECURITY.md, sentence by sentence: each is kept by tests, which `KEPT_BY` names, or says what others must do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rarely import LinUCB, OnDemand
from rarely.study import Study

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT / "src", ROOT / "lab" / "src"]
ADVICE = ()
"""Of a sentence that says what it is for, or what is left to the reader."""
KEPT_BY = {
    "`rarely.load` runs no code": [
        "test_security.py::test_load_runs_nothing_and_opens_no_other_file",
        "core/test_archive.py::test_members_that_claim_more_than_the_file_has_are_refused",
    ],
    "Every field is checked": ["core/test_forged.py::test_a_forged_file_ends_in_a_typed_error_or_does_no_harm"],
    "An update takes as many": ["core/test_watch.py::test_every_budget_gives_a_version_or_a_reason"],
    "It makes values of classes": [
        "ensembles/test_ensemble_policy.py::test_a_file_makes_none_but_harmless_estimators",
        "study/test_own_classes.py::test_a_class_that_is_not_imported_is_named_and_its_checkpoints_stay",
    ],
    "Their parameters": ["ensembles/test_ensemble_policy.py::test_no_harmless_parameter_names_a_place_or_a_function"],
    "Any other estimator": [
        "ensembles/test_ensemble_policy.py::test_an_estimator_that_no_file_may_make_is_given",
        "study/test_own_classes.py::test_a_model_that_is_code_is_given_or_named_by_its_module",
    ],
    "Records and logs": [
        "test_security.py::test_what_is_read_is_never_unpickled",
        "core/test_forged.py::test_a_forged_file_ends_in_a_typed_error_or_does_no_harm",
        "test_security.py::test_plans_are_not_read",
    ],
    "Policies and records carry": [
        "core/test_archive.py::test_a_flipped_bit_in_any_byte_is_noticed_or_carries_nothing",
        "study/test_damage.py::test_verify_names_the_first_bad_row",
    ],
    "A checksum is no defence": ["core/test_archive.py::test_a_seal_of_ones_own_is_accepted_if_all_fits"],
    "Protect them with": ADVICE,
    "Five features use it": [
        "test_security.py::test_only_the_features_of_the_table_can_use_the_network",
        "test_security.py::test_a_life_of_a_policy_and_a_study_uses_no_network",
    ],
    "With `--engine ray`": ["../lab/tests/engine/test_ray_executor.py::test_a_ray_beyond_loopback_is_refused"],
    "`rarely serve` is made for": ADVICE,
    "Every route but": [
        "service/test_access.py::test_every_route_is_refused_without_its_scope",
        "service/test_operations.py::test_health_needs_no_key_and_tells_no_paths_or_names",
    ],
    "A key can be limited": [
        "service/test_access.py::test_a_key_may_be_for_single_studies",
        "service/test_access.py::test_a_key_may_have_a_rate",
        "service/test_access.py::test_an_expired_key_is_refused",
    ],
    "The file of keys": ["service/test_access.py::test_keys_are_hashed_and_revoked_while_the_service_runs"],
    "Without keys the service": [
        "service/test_access.py::test_off_this_machine_keys_are_demanded",
        "service/test_access.py::test_without_keys_another_name_than_this_machines_is_refused",
    ],
    "Before a key is read": [
        "service/test_operations.py::test_a_long_head_is_refused_before_it_takes_memory",
        "service/test_operations.py::test_half_requests_are_closed_and_do_not_keep_others_out",
        "service/test_operations.py::test_an_address_may_have_so_many_connections",
        "service/test_input.py::test_a_body_of_100_megabytes_is_refused_unread",
        "service/test_input.py::test_too_many_arms_are_refused",
    ],
    "Bodies are strict JSON": [
        "service/test_input.py::test_bytes_are_read_as_json_or_refused",
        "test_security.py::test_text_of_a_request_is_no_sql",
        "service/test_dashboard.py::test_what_people_wrote_is_text_on_the_page",
    ],
    "Pages load nothing": ["service/test_dashboard.py::test_a_page_loads_nothing_and_runs_nothing"],
    "Their buttons need": ["service/test_dashboard.py::test_no_other_page_and_no_other_key_can_press_a_button"],
    "No redirect leads": ["service/test_operations.py::test_no_redirect_leads_to_the_host_that_a_request_names"],
    "Logs, errors and metrics": [
        "service/test_operations.py::test_requests_are_logged_without_secrets",
        "service/test_operations.py::test_passwords_are_not_shown",
        "study/test_damage.py::test_a_server_that_cannot_be_reached_is_named_without_its_password",
    ],
    "A key for single studies": ["service/test_access.py::test_a_key_may_be_for_single_studies"],
    "Every decision, reward": ["service/test_access.py::test_a_key_is_the_actor_of_what_is_done_with_it"],
    "They read and write": ["core/test_native.py::test_nothing_handed_over_is_changed"],
    "They will be built": ["test_project.py::test_a_release_is_published_when_everything_is_checked_and_signed"],
    "`load` of an `EnsemblePolicy` trains": [
        "ensembles/test_ensemble_policy.py::test_a_forged_field_is_refused_before_anything_is_trained"
    ],
    "Pickled policies": ADVICE,
    "`rarely compare --policy": ["study/test_own_classes.py::test_commands_import_it_first"],
    "`rarely serve` speaks plain HTTP": ADVICE,
    "Whoever may write": [
        "study/test_damage.py::test_an_end_that_was_cut_off_is_found_by_who_noted_the_last_hash",
    ],
    "Keys with the scope": ADVICE,
    "A flood from many": ADVICE,
}
NETWORKED = {
    "rarely/service/server.py",
    "rarely/study/client.py", "rarely/study/storage/postgresql.py",
    "rarely/cluster/files.py", "rarely/runs/machine.py", "rarely/worlds/datasets.py",
    "rarely/study/versions.py",
}  # fmt: skip
"""Modules that import what can use the network; the last asks for the machine's name alone."""
NETWORK = re.compile(
    r"^\s*(?:import|from) (?:socket|ssl|http\.client|http\.server|urllib\.request|psycopg|uvicorn)\b"
    r"|FileSystem\.from_uri|ray\.init|import_module\(\"psycopg\"\)",
    re.MULTILINE,
)
UNPICKLING = re.compile(r"pickle\.loads?\(|allow_pickle=True|(?<![.\w])(?:eval|exec)\(|yaml\.load")
LIFE = """
import sys, tempfile, warnings
import numpy as np, rarely
from rarely import BatchNeuralUCB, LinUCB, OnDemand, load
from rarely.study import Study
warnings.simplefilter("ignore")
here, seen = tempfile.mkdtemp(), []

def life(name):
    policy = BatchNeuralUCB(2, OnDemand(), hidden=4, seed=0)
    policy.observe(policy.select(np.random.default_rng(0).normal(size=(20, 3, 2))), np.arange(20.0))
    policy.update()
    policy.save(f"{here}/policy")
    load(f"{here}/policy")
    with Study.create(f"sqlite:///{here}/{name}.db", "trial", policy=LinUCB(2, OnDemand()), arms=["a", "b"]) as study:
        study.tell(study.ask([[1.0, 0.0], [0.0, 1.0]], id="1").id, 1.0)
        study.update()
        study.verify(), study.replay()

def hear(event, args):
    if recording and (event in WATCHED or event.split(".")[0] in WATCHED):
        if event != "open" or not isinstance(args[0], str) or args[0] != f"{here}/policy" or args[1] not in ("rb", "r"):
            seen.append((event, str(args)[:90]))

recording = False
sys.addaudithook(hear)
life("first")  # imports what it needs
"""


def sentences() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    text = text[text.index("**Files.**") :]
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
    whole = " ".join(" ".join(lines).split()).replace("hostile: - ", "hostile. ")
    whole = re.sub(r"\*\*[\w ]+\.\*\* ", "", whole).replace(". - ", ". ")
    return re.split(r"(?<=[.:]) (?=[A-Z`])", whole)


def heard(watched: str, call: str) -> str:
    """Return which audit events of Python come while a process of its own makes a call."""
    code = f"{LIFE}\nWATCHED = set({watched!r}.split())\nrecording = True\n{call}\nrecording = False\nprint(seen)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def modules_with(pattern: re.Pattern[str]) -> set[str]:
    paths = [(root, path) for root in SOURCES for path in root.rglob("*.py")]
    return {p.relative_to(root).as_posix() for root, p in paths if pattern.search(p.read_text(encoding="utf-8"))}


def test_every_sentence_has_its_tests_and_every_test_its_sentence():
    said = sentences()
    for sentence in said:
        assert sum(sentence.startswith(begin) for begin in KEPT_BY) == 1, sentence
    for begin in KEPT_BY:
        assert sum(sentence.startswith(begin) for sentence in said) == 1, begin


@pytest.mark.parametrize("name", sorted({name for names in KEPT_BY.values() for name in names}))
def test_a_test_that_keeps_a_sentence_exists(name):
    path, function = name.split("::")
    assert re.search(rf"^def {function}\(", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_load_runs_nothing_and_opens_no_other_file():
    watched = "open exec compile import os subprocess socket pickle shutil ctypes"
    assert heard(watched, "load(f'{here}/policy')") == "[]"


def test_a_life_of_a_policy_and_a_study_uses_no_network():
    assert set(re.findall(r"\('([\w.]+)'", heard("socket urllib http", "life('second')"))) <= {"socket.gethostname"}


def test_only_the_features_of_the_table_can_use_the_network():
    assert modules_with(NETWORK) == NETWORKED


def test_what_is_read_is_never_unpickled():
    """Two unpickle a training that a process of their own has made; the others are a test kit and an example."""
    assert modules_with(UNPICKLING) == {
        "rarely/study/versions.py",
        "rarely/service/opened.py",
        "rarely/testing.py",
        "rarely/_core/policies/policy.py",
    }


def test_plans_are_not_read():
    for path in (ROOT / "src" / "rarely" / "planning").rglob("*.py"):
        assert not re.search(r"json\.loads?\(|\bopen\([^)]*\"r", path.read_text(encoding="utf-8")), path


def test_text_of_a_request_is_no_sql():
    study = Study.create("memory://security", "trial", policy=LinUCB(1, OnDemand()), arms=["a", "b"])
    hostile = "x'); DROP TABLE rarely_events; --"
    answer = study.ask([[1.0], [2.0]], id=hostile, actor=hostile, reason=hostile)
    assert study.tell(hostile, 1.0, key=hostile).status == "accepted"
    assert study.decision(hostile).answer == answer
    assert study.verify().whole
