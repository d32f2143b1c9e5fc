"""The one engine of the laboratory: cells in, records out."""
