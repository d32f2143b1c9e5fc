"""The dashboard: pages that a server renders, with pictures inside and nothing loaded from elsewhere."""

from rarely.service.dashboard.overview import Overview
from rarely.service.dashboard.pages import render_index, render_routes, render_study

__all__ = ["Overview", "render_index", "render_routes", "render_study"]
