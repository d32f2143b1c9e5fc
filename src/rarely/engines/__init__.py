"""Where cells are played, other than in processes on this machine."""
