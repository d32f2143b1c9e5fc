"""The log of `rarely serve`: lines of text, or of JSON, on standard error. As a library, rarely logs nothing."""

from __future__ import annotations

import json
import logging
import time
from typing import Literal

from fastapi import Request

LogFormat = Literal["text", "json"]
REQUESTS = logging.getLogger("rarely.requests")
TEXT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the traceback if any, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        when = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}Z"
        said = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        said |= getattr(record, "fields", {})
        said |= {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(said, ensure_ascii=False)


def log_request(request: Request, status: int, seconds: float) -> None:
    """Log a request, with its path as it was sent; neither its headers nor its body."""
    path, client = request.scope.get("raw_path", b"").decode("ascii", "replace"), request.client
    fields = {"method": request.method, "path": path, "status": status, "milliseconds": round(seconds * 1e3, 2)}
    fields |= {"client": client.host if client else "", "key": getattr(request.state, "key", "")}
    REQUESTS.info(" ".join(str(value) or "-" for value in fields.values()), extra={"fields": fields})


def configure_logs(form: LogFormat, *, requests: bool) -> None:
    """Send the messages of the service and of its server to standard error."""
    handler, formatter = logging.StreamHandler(), (JsonFormatter if form == "json" else logging.Formatter)(TEXT)
    formatter.datefmt, formatter.converter = "%Y-%m-%dT%H:%M:%S", time.gmtime
    handler.setFormatter(formatter)
    logging.captureWarnings(True)
    for name, level in (("rarely", logging.INFO), ("uvicorn", logging.WARNING), ("py.warnings", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    REQUESTS.setLevel(logging.INFO if requests else logging.WARNING)
