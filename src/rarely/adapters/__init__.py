"""Adapters to other libraries, each imported by its own name, such as `rarely.adapters.mlflow`."""
