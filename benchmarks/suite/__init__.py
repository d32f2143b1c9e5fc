"""The figures of docs/performance.md, as ratios to what the machine itself can do: `python benchmarks/bench.py`."""
