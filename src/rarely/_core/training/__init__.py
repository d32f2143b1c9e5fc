"""Gradient descent on the network, and how it is tuned."""
