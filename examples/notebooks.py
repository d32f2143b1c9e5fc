"""Six tutorials as notebooks for Jupyter, with their outputs; the tests run the blocks that they are made of.

python examples/notebooks.py            # out/notebooks
python examples/notebooks.py mine       # into this folder
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = ("recommender", "trial", "torch", "csv-to-service", "changing-world", "campaign")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def notebook(page: str) -> dict[str, Any]:
    """Return a page as a notebook: its code as cells with the outputs that it shows, and its prose between them."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str, **rest: Any) -> None:
        if text.strip():
            lines = text.strip("\n").splitlines(keepends=True)
            cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": lines, **rest})

    end = 0
    for block in BLOCK.finditer(page):
        add("markdown", page[end : block.start()])
        shown = (
            [] if block[2] is None else [{"output_type": "stream", "name": "stdout", "text": block[2].splitlines(True)}]
        )
        add("code", block[1], execution_count=None, outputs=shown)
        end = block.end()
    add("markdown", page[end:])
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    """Write all of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        made = notebook((TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))
        (folder / f"{name}.ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(folder / f"{name}.ipynb")


if __name__ == "__main__":
    main()
