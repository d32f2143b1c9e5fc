"""What a tutorial shows is what its code prints."""

import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import code_blocks
from code_blocks import run, sections
from rarely.study import Client

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"-?\d+\.?\d*")


def companion(name, monkeypatch):
    """A tutorial's companion, by the name under which its blocks import it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def own_log(monkeypatch):
    return companion("own_log", monkeypatch)


@pytest.fixture
def clinic(own_log, monkeypatch):
    return companion("choosing_b_and_q", monkeypatch)


def words_and_numbers(text):
    """Words, whole numbers and others; without the runner-up of a tuning, which rounding may choose among equals."""
    told = re.sub(r", against .*", "", text)
    found = NUMBER.findall(told)
    return NUMBER.sub("#", told), [float(n) for n in found if "." not in n], [float(n) for n in found if "." in n]


@pytest.mark.slow  # `make docs` runs it
def test_the_tutorial_on_ones_own_log_shows_what_it_prints(own_log, tmp_path):
    told = own_log.play(tmp_path)
    assert len(told) == own_log.TUTORIAL.read_text(encoding="utf-8").count("```python") == 7
    for shown, printed in told:
        words, whole, others = words_and_numbers(shown)
        own_words, own_whole, own_others = words_and_numbers(printed)
        assert own_words == words
        assert own_whole == pytest.approx(whole, rel=0.01)
        # Another BLAS rounds otherwise; a long training in float32 shows it in the second digit.
        assert own_others == pytest.approx(others, rel=0.1, abs=0.01)
    assert "<svg" in (tmp_path / "calibration.svg").read_text(encoding="utf-8")


@pytest.mark.slow  # `make docs` runs it
def test_the_tutorial_on_choosing_b_and_q_shows_what_it_prints(clinic, tmp_path):
    told = clinic.play(tmp_path, clinic.TUTORIAL)
    assert len(told) == clinic.TUTORIAL.read_text(encoding="utf-8").count("```python") == 8
    for shown, printed in told:
        words, whole, others = words_and_numbers(shown)
        own_words, own_whole, own_others = words_and_numbers(printed)
        assert own_words == words
        # A decision that rounding turns moves the batches after it, and with them everything a little.
        assert own_whole == pytest.approx(whole, rel=0.1, abs=3)
        assert own_others == pytest.approx(others, rel=0.15, abs=0.1)
    assert "<svg" in (tmp_path / "plan" / "plan.svg").read_text(encoding="utf-8")


def test_the_tutorial_on_a_recommender_shows_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorials" / "recommender.md"
    blocks = [block for section in sections(page) for block in section.blocks]
    assert len(blocks) == 7
    assert all(block.shown for block in blocks)
    names = run(blocks)
    assert names["policy"].round == 900


def test_the_tutorial_on_two_frames_shows_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorials" / "two-frames.md"
    blocks = [block for section in sections(page) for block in section.blocks]
    assert all(block.shown for block in blocks)
    assert run(blocks)["answer"].arm == "discount"


@pytest.mark.slow  # `make docs` runs it
def test_the_tutorial_on_a_world_that_changes_shows_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorials" / "changing-world.md"
    blocks = [block for section in sections(page) for block in section.blocks]
    assert all(block.shown for block in blocks)
    assert any("is set aside" in update.memory for update in run(blocks)["default"].updates)


@pytest.mark.parametrize(  # `make docs` runs those that are slow, too
    "name", [*(pytest.param(n, marks=pytest.mark.slow) for n in ("router", "carousel")), "price", "personalizer"]
)
def test_a_tutorial_on_prices_shows_what_it_prints(name, tmp_path, monkeypatch):
    pytest.importorskip("uvicorn" if name == "personalizer" else "matplotlib")
    monkeypatch.chdir(tmp_path)
    blocks = [block for section in sections(ROOT / "docs" / "tutorials" / f"{name}.md") for block in section.blocks]
    with warnings.catch_warnings():
        run(blocks)
    assert name == "personalizer" or "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.slow  # `make docs` runs it
def test_the_tutorial_on_a_trial_shows_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block for section in sections(ROOT / "docs" / "tutorials" / "trial.md") for block in section.blocks]
    assert len(blocks) == 5
    assert run(blocks)["analysis"].contrasts[2].excludes(0.0)
    assert "call − letter" in (tmp_path / "analysis.html").read_text(encoding="utf-8")


def served_page(name, study, tmp_path, before, during, expected):
    """Run a tutorial that serves a study: first blocks, then its shell and others beside the service, then the rest."""
    pytest.importorskip("starlette", reason="the service needs rarely[serve]")
    page = tmp_path / "page.md"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8").replace("8000", port)
    page.write_text(text, encoding="utf-8")
    blocks = [block for section in code_blocks.sections(page) for block in section.blocks]
    assert len(blocks) == text.count("```python")
    command = re.search(r"^rarely (serve sqlite.*)$", text, re.MULTILINE).group(1).split()
    names = code_blocks.run(blocks[:before])
    service = subprocess.Popen([sys.executable, "-m", "rarely", *command])
    try:
        with Client(f"http://127.0.0.1:{port}", study, retries=60, backoff=0.2) as waiting:
            waiting.status()
        shell = re.search(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE).group(1)
        if shutil.which("curl"):
            said = subprocess.run(["sh", "-ec", shell], capture_output=True, text=True, check=True).stdout
            assert [part for part in expected if part not in said] == []
        code_blocks.run(blocks[before:during], names)
    finally:
        service.terminate()
        assert service.wait(60) in (0, -15)
    code_blocks.run(blocks[during:], names)


@pytest.mark.parametrize(
    ("name", "study", "before", "during", "expected"),
    [
        ("notebook-to-service", "banners", 1, 4, ['"round":101', '"status":"accepted"']),
        (
            "csv-to-service",
            "offers",
            3,
            4,
            ['"round":1', '"status":"accepted"', "column 'age' of user"],
        ),
    ],
)
def test_a_tutorial_with_a_service_shows_what_it_prints(name, study, before, during, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    served_page(name, study, tmp_path, before, during, expected)


def test_the_example_tables_are_the_same_for_everyone(own_log, clinic, tmp_path):
    for module in (own_log, clinic):
        for name in ("one", "two"):
            module.write_example(tmp_path / name)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_links_of_the_tutorials_lead_somewhere():
    for tutorial in (ROOT / "docs" / "tutorials").glob("*.md"):
        links = re.findall(r"\]\(([^):]+)\)", tutorial.read_text(encoding="utf-8"))
        assert links
        assert all((tutorial.parent / link).exists() for link in links), tutorial


def test_notebooks_have_the_code_and_the_outputs_of_their_pages(monkeypatch):
    made = companion("notebooks", monkeypatch)
    assert len(made.PAGES) == 6
    for name in made.PAGES:
        text = (made.TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
        book = made.notebook(text)
        code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
        assert code == [
            block.strip("\n") for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        ]
        assert code, name
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
        prose = "".join("".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "markdown")
        assert "```python" not in prose
    shown = [cell["outputs"] for cell in made.notebook(text)["cells"] if cell["cell_type"] == "code"]
    assert any(shown)
