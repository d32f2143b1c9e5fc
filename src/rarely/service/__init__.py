"""Studies over HTTP: one writer for each study, training in another process, keys with scopes, and a dashboard."""

from rarely.service import personalizer as personalizer  # whose routes are served too
from rarely.service.access import SCOPES, Key, KeyFile
from rarely.service.app import create_app
from rarely.service.server import serve
from rarely.service.writer import ServiceLimits

__all__ = ["SCOPES", "Key", "KeyFile", "ServiceLimits", "create_app", "serve"]
