"""`rarely serve` and `rarely keys`: studies over HTTP."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rarely.cli.console import console, error_console, guarded_by
from rarely.cli.storage import Storage
from rarely.core.errors import InvalidInput

guarded = guarded_by("stopped; what was answered is on record")
keys_app = typer.Typer(
    help="API keys of `rarely serve`: hashed in a file, shown once, read again when the file changes.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
DAY = 24 * 3600.0
KeyPath = Annotated[Path, typer.Argument(help="The file of keys.")]
KeyName = Annotated[str, typer.Argument(help="Whose key; on record with everything that is done with it.")]


def needs_extra() -> None:
    """Say which packages are missing, before a traceback does."""
    for package in ("fastapi", "uvicorn", "jinja2"):
        if find_spec(package) is None:
            raise InvalidInput(f"this needs {package}: pip install 'rarely[serve]'.")


@guarded
def serve_command(
    storage: Storage,
    host: Annotated[str, typer.Option(help="Where to listen; off this machine --keys is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any.", min=0, max=65535)] = 8000,
    keys: Annotated[Path | None, typer.Option(help="A file of API keys, as `rarely keys add` makes it.")] = None,
    train: Annotated[bool, typer.Option(help="Train the next version when the schedule ends a batch.")] = True,
    waiting: Annotated[int, typer.Option(help="Decisions and rewards that may wait; more get 429.", min=1)] = 2000,
    body: Annotated[int, typer.Option(help="Most bytes of a request.", min=1)] = 1 << 20,
    arms: Annotated[int, typer.Option(help="Most arms of a decision.", min=1)] = 1000,
) -> None:
    """Serve the studies of a database over HTTP, with a dashboard.

    **Examples**

    - `rarely serve sqlite:///trial.db` — then open http://127.0.0.1:8000
    - `rarely serve postgresql://rarely@db/trials --host 0.0.0.0 --keys keys.json`
    """
    needs_extra()
    from rarely.service import KeyFile, Limits, serve

    limits = Limits(waiting=waiting, body=body, arms=arms)
    file = None if keys is None else KeyFile(keys)

    def announce(address: str) -> None:
        console.print(escape(f"{address}  dashboard /   routes /docs   Ctrl-C ends it"))

    if not serve(storage, host=host, port=port, announce=announce, keys=file, limits=limits, automatic=train):
        error_console.print("[red]error:[/red] the service did not start; the lines above say why")
        raise typer.Exit(1)


@keys_app.command("add")
@guarded
def add_command(
    file: KeyPath,
    name: KeyName,
    scope: Annotated[list[str], typer.Option(help="decide, reward, read or admin; may be repeated.")],
    days: Annotated[float | None, typer.Option(help="How long it is valid; for ever by default.")] = None,
) -> None:
    """Make a key and show it, once.

    **Examples**

    - `rarely keys add keys.json shop --scope decide --scope reward`
    """
    needs_extra()
    from rarely.service import KeyFile

    expires = None if days is None else time.time() + days * DAY
    typer.echo(KeyFile(file).add(name, scope, expires=expires))
    error_console.print("This is the only time that the key is shown.")


@keys_app.command("rotate")
@guarded
def rotate_command(
    file: KeyPath,
    name: KeyName,
    grace: Annotated[float, typer.Option(help="Seconds for which the old key is accepted too.", min=0)] = 3600.0,
) -> None:
    """Make a new key in place of an old one, with the same scopes.

    **Examples**

    - `rarely keys rotate keys.json shop --grace 600`
    """
    needs_extra()
    from rarely.service import KeyFile

    typer.echo(KeyFile(file).rotate(name, grace=grace))
    error_console.print("This is the only time that the key is shown.")


@keys_app.command("revoke")
@guarded
def revoke_command(file: KeyPath, name: KeyName) -> None:
    """Drop a key; a running service refuses it from now on.

    **Examples**

    - `rarely keys revoke keys.json shop`
    """
    needs_extra()
    from rarely.service import KeyFile

    KeyFile(file).revoke(name)
    console.print(escape(f"{name} is revoked"))


@keys_app.command("list")
@guarded
def list_command(file: KeyPath) -> None:
    """Name the keys, their scopes and how long they are valid; no secrets.

    **Examples**

    - `rarely keys list keys.json`
    """
    needs_extra()
    from rarely.service import KeyFile

    for key in KeyFile(file).all():
        left = None if key.expires is None else (key.expires - time.time()) / DAY
        validity = "for ever" if left is None else "expired" if left <= 0 else f"{left:.1f} days more"
        console.print(escape(f"{key.name:<20}  {', '.join(key.scopes):<30}  {validity}"))
