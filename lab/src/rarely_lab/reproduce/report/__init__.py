"""The report on the paper's experiments: results, claims and their verdicts, figures and pages, from records alone."""
