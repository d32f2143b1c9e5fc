"""What is distributed: published records are data of the repository, and in neither wheel nor source distribution."""

import tarfile
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
GOLDEN = LAB["project"]["entry-points"]["rarely.golden"]
RECORDS = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("docs/*.gz"), ROOT / "docs" / "records"))


def test_records_are_left_out_of_the_source_distribution():
    left_out = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"]
    assert RECORDS
    assert all(any(Path("/", record).match(pattern) for pattern in left_out) for record in RECORDS)


def test_a_built_source_distribution_has_no_records_and_all_golden_files(tmp_path):
    builder = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed").SdistBuilder
    (built,) = builder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in names if name.endswith((".gz", ".xz")) and not name.startswith("tests/")]
    golden = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("**/src/**/golden.json")}
    assert golden
    assert golden <= names


def test_a_wheel_holds_its_package_alone():
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/rarely"]
    assert LAB["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/rarely_lab"]
    assert not [path for folder in ("src", "lab/src") for path in (ROOT / folder).rglob("*.gz")]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_entry_point_has_golden_families(name):
    families = EntryPoint(name, GOLDEN[name], "rarely.golden").load()
    assert families
    assert families.path.is_file()
