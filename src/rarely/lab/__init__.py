"""The laboratory: experiments as data, run once, kept as records, drawn and judged from the records alone."""
