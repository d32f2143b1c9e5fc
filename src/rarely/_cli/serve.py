"""`rarely serve` and `rarely keys`: studies over HTTP."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer import Argument, Option

from rarely._cli.study import STOPPED, Storage
from rarely.console import IMPORTED, Group, Imports, console, error_console, guarded_by
from rarely.errors import InvalidInput

if TYPE_CHECKING:
    from rarely.service import KeyFile

keys_app = Group(
    "keys",
    "API keys of `rarely serve`: shown once, kept as hashes in a file that the service rereads when it changes.",
    STOPPED,
)
DAY = 24 * 3600.0
KeyPath = Annotated[Path, Argument(help="The file of keys.")]
KeyName = Annotated[str, Argument(help="The owner of the key; recorded with everything done with it.")]


def needs_extra() -> None:
    """Raise an error that says which package is missing, if any."""
    for package in ("starlette", "pydantic", "uvicorn", "httptools", "jinja2"):
        if find_spec(package) is None:
            raise InvalidInput(f"this needs {package}: pip install 'rarely[serve]'.")


def key_file(path: Path) -> KeyFile:
    """Return the file of keys of a command."""
    needs_extra()
    from rarely.service import KeyFile

    return KeyFile(path)


@guarded_by(STOPPED)
def serve_command(
    storage: Storage,
    host: Annotated[str, Option(help="The address to listen at; other machines need --keys.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port; 0 for any free one.", min=0, max=65535)] = 8000,
    keys: Annotated[Path | None, Option(help="A file of API keys, made by `rarely keys add`.")] = None,
    train: Annotated[bool, Option(help="Train the next version when the schedule ends a batch.")] = True,
    waiting: Annotated[int, Option(help="Decisions and rewards that may wait; more get 429.", min=1)] = 2000,
    body: Annotated[int, Option(help="The maximal number of bytes of a request.", min=1)] = 1 << 20,
    arms: Annotated[int, Option(help="The maximal number of arms of a decision.", min=1)] = 1000,
    connections: Annotated[int, Option(help="Connections of one address; a proxy is one.", min=1)] = 1000,
    proxy: Annotated[list[str] | None, Option(help="The address of a proxy to believe; may be repeated.")] = None,
    log_format: Annotated[str, Option(help="The form of the log on standard error: text or json.")] = "text",
    log_requests: Annotated[bool, Option(help="Log every request.")] = False,
    imports: Imports = None,
) -> None:
    """Serve the studies of a database over HTTP, with a dashboard.

    **Examples**

    - `rarely serve sqlite:///trial.db` — then open http://127.0.0.1:8000
    - `rarely serve postgresql://rarely@db/trials --host 0.0.0.0 --keys keys.json`
    - `rarely serve sqlite:///trial.db --import mypackage.parts` — with a schedule of your own
    - `rarely serve sqlite:///trial.db --import mypackage.nets:net` — with a torch module
    """
    needs_extra()
    from rarely.service import ServiceLimits, serve

    limits = ServiceLimits(waiting=waiting, body=body, arms=arms, connections=connections)
    options: Any = {"host": host, "port": port, "limits": limits, "automatic": train, "models": IMPORTED}
    options |= {"keys": None if keys is None else key_file(keys), "proxies": proxy or (), "log_format": log_format}

    def announce(address: str) -> None:
        console.print(escape(f"{address}  dashboard /   routes /openapi.json   Ctrl-C to stop"))

    if not serve(storage, announce=announce, log_requests=log_requests, **options):
        error_console.print("[red]error:[/red] the service could not go on; see the lines above")
        raise typer.Exit(1)


@keys_app.add("add", "keys.json shop --scope decide --scope reward --study banners --rate 100")
def add_command(
    file: KeyPath,
    name: KeyName,
    scope: Annotated[list[str], Option(help="decide, reward, read, blinded, look, approve, admin.")],
    days: Annotated[float | None, Option(help="Days until it expires; by default it does not.")] = None,
    study: Annotated[list[str] | None, Option(help="A study that it is for; may be repeated.")] = None,
    rate: Annotated[float | None, Option(help="Calls a second; more get 429. By default no limit.")] = None,
) -> None:
    """Make a key, and show it once."""
    expires = None if days is None else time.time() + days * DAY
    typer.echo(key_file(file).add(name, scope, expires=expires, studies=study or None, rate=rate))
    error_console.print("This is the only time that the key is shown.")


@keys_app.add("revoke", "keys.json shop")
def revoke_command(file: KeyPath, name: KeyName) -> str:
    """Remove a key; a running service refuses it from now on."""
    key_file(file).revoke(name)
    return f"{name} was revoked"


@keys_app.add("list", "keys.json")
def list_command(file: KeyPath) -> None:
    """List the keys with their scopes and validity, without secrets."""
    for key in key_file(file).all():
        left = None if key.expires is None else (key.expires - time.time()) / DAY
        validity = "no expiry" if left is None else "expired" if left <= 0 else f"{left:.1f} days left"
        where = "all studies" if key.studies is None else ", ".join(key.studies)
        pace = "" if key.rate is None else f"  {key.rate:g} calls a second"
        console.print(escape(f"{key.name:<20}  {', '.join(key.scopes):<30}  {validity:<15}  {where}{pace}"))
