"""What README shows runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_and_keeps_its_budget():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    policy = names["policy"]
    assert policy.round == 1000
    assert 2 <= policy.version + 1 <= 20


def test_the_picture_of_the_house_is_true():
    text = README.read_text(encoding="utf-8")
    house = text[text.index("src/rarely/\n") :].split("```")[0]
    root = README.parent / "src" / "rarely"
    for module in root.rglob("*.py"):
        if module.name != "__init__.py":
            assert re.search(rf"\b{module.stem}\b", house), module
    assert all((README.parent / link).exists() for link in re.findall(r"\]\(([^):]+)\)", text))
