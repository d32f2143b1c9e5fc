"""Studies over HTTP: one writer for each study, training in another process, keys with scopes, and a dashboard."""

from rarely.service.access import SCOPES, Key, KeyFile
from rarely.service.app import create_app
from rarely.service.server import serve
from rarely.service.writer import Limits

__all__ = ["SCOPES", "Key", "KeyFile", "Limits", "create_app", "serve"]
