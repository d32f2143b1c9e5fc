"""Studies over HTTP: one writer for each study, training in another process, keys with scopes, and a dashboard."""

from rarely.service.app import create_app
from rarely.service.keys import SCOPES, Key, KeyFile
from rarely.service.limits import Limits
from rarely.service.running import serve
from rarely.service.site import written_page

__all__ = ["SCOPES", "Key", "KeyFile", "Limits", "create_app", "serve", "written_page"]
