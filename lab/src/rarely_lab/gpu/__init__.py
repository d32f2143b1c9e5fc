"""Many runs at once on a GPU: the paper's experiments in lockstep. Needs torch and CuPy, of the extra [gpu]."""
