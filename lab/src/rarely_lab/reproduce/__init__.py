"""The experiments of the paper: described as data, run once, kept as records, reported from the records alone."""
