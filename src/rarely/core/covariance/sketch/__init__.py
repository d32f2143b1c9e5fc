"""Z of a sketch: some of the features stand for all."""
