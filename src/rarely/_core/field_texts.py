"""The strings under the fields of a class in `help()`: read from the source when somebody asks for the docstring."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent, indent
from typing import Any


class FieldTexts(str):
    """A docstring as it is written, which as the `__doc__` of a class has a section on its fields."""

    def __get__(self, instance: object, owner: type) -> str:
        before, heading, examples = inspect.cleandoc(self).partition("Examples\n----")
        try:
            tree: Any = ast.parse(dedent(inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):  # the source is not at hand
            return before + heading + examples
        fields = "Attributes\n----------\n"
        for node, after in pairwise([*tree.body[0].body, None]):
            if isinstance(node, ast.AnnAssign) and not (name := ast.unparse(node.target)).startswith("_"):
                fields += f"{name} : {ast.unparse(node.annotation)}\n"
                if isinstance(after, ast.Expr):
                    fields += indent(inspect.cleandoc(ast.literal_eval(after.value)), "    ") + "\n"
        return f"{before.rstrip()}\n\n{fields}\n{heading}{examples}".rstrip()


def show_fields(names: dict[str, Any]) -> None:
    """Let `help()` show the fields of the exported dataclasses and named tuples, unless it does already."""
    for thing in map(names.get, names["__all__"]):
        if hasattr(thing, "__dataclass_fields__") or hasattr(thing, "_fields"):
            written = vars(thing)["__doc__"]
            if isinstance(written, str) and "Attributes\n" not in written and "Parameters\n" not in written:
                thing.__doc__ = FieldTexts(written)
