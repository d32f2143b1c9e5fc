"""The commands that the laboratory adds to `rarely`: reproduce, report and compare."""
