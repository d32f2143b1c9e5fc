"""The log of `rarely serve`: lines of text, or of JSON, on standard error. A library logs nothing unless asked to."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal

from fastapi import Request

LogFormat = Literal["text", "json"]
REQUESTS = logging.getLogger("rarely.requests")
"""One line for each request; silent unless `--log-requests` is set."""


class TextFormatter(logging.Formatter):
    """Time in UTC, level and message on one line; a traceback follows on its own lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the traceback if any, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        when = f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z"
        said = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        said |= getattr(record, "fields", {})
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_request(request: Request, status: int, seconds: float) -> None:
    """Log a request: method, path as it was sent, status, milliseconds, and the client's address and key's name."""
    scope = request.scope
    fields = {
        "method": request.method,
        "path": scope.get("raw_path", b"").decode("ascii", "replace"),
        "status": status,
        "milliseconds": round(seconds * 1e3, 2),
        "client": request.client.host if request.client else "",
        "key": getattr(request.state, "key", ""),
    }
    REQUESTS.info(" ".join(str(value) or "-" for value in fields.values()), extra={"fields": fields})


def configure_logs(form: LogFormat, *, requests: bool) -> None:
    """Send the messages of the service and of its server to standard error."""
    handler, formatter = logging.StreamHandler(), JsonFormatter() if form == "json" else TextFormatter()
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    for name, level in (("rarely", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    REQUESTS.setLevel(logging.INFO if requests else logging.WARNING)
