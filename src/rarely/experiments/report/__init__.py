"""Tables, figures, verdicts and the page, all computed from records."""
