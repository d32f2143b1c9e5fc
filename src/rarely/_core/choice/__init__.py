"""From means and bonuses to an arm: rules, probabilities, radii and random numbers."""
