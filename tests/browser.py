"""A real browser, where one is installed: what a page looks like is measured in it."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: no page is loaded in a browser")


def browse(folder, path, *options):
    """Load a file, and return what the browser prints."""
    command = [CHROMIUM, *QUIET, f"--user-data-dir={folder / 'profile'}", *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def probe(folder, page, script, width, height=900):
    """Load a page in a frame as wide as a screen, and return the value of an expression once it is there.

    A window of chromium is at least 500 pixels wide, and a phone's screen is not.
    """
    asks = f"addEventListener('load', () => parent.document.title = JSON.stringify({script}))"
    inner = page.replace("</body>", f"<script>{asks}</script></body>").replace("&", "&amp;").replace('"', "&quot;")
    frame = f'<iframe srcdoc="{inner}" style="width: {width}px; height: {height}px; border: 0"></iframe>'
    outer = folder / f"screen-{width}.html"
    outer.write_text(f"<!doctype html><title></title>{frame}", encoding="utf-8")
    dom = browse(
        folder, outer, f"--window-size={max(width, 500) + 20},{height}", "--virtual-time-budget=10000", "--dump-dom"
    )
    return json.loads(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1].replace("&amp;", "&"))
