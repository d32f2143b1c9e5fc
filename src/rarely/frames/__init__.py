"""Contexts from tables: frames of pandas, polars and pyarrow, dicts of columns and lists of dicts."""
