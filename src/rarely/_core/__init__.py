"""The algorithm: arrays in, arrays out."""
