"""The one engine for runs: cells in, records out; and what runs share (play, statistics, provenance, files)."""
