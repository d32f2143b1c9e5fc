"""The laboratory of rarely: the paper's experiments, the leaderboard, and many runs at once on a GPU."""
