"""`rarely study dashboard`: the pages of `rarely serve` without its routes, or one page as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rarely.cli.console import console
from rarely.cli.serve import needs_extra
from rarely.cli.storage import Storage
from rarely.cli.study import Name, guarded, opened, study_app


@study_app.command("dashboard")
@guarded
def dashboard_command(
    storage: Storage,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file instead of serving it.")] = None,
    port: Annotated[int, typer.Option(help="The port on this machine.", min=0, max=65535)] = 8001,
    name: Name = None,
) -> None:
    """Show a study in the browser: on this machine, for reading alone, or as a file that can be sent.

    **Examples**

    - `rarely study dashboard trial.db` — then open http://127.0.0.1:8001
    - `rarely study dashboard trial.db --out trial.html`
    """
    needs_extra()
    from rarely.service import serve, written_page

    if out is not None:
        with opened(storage, name) as study:
            out.write_text(written_page(study), encoding="utf-8")
        console.print(escape(f"{out}"))
        return
    console.print(f"http://127.0.0.1:{port}  Ctrl-C ends it")
    if not serve(storage, port=port, automatic=False, read_only=True):
        raise typer.Exit(1)
