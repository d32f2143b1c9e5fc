"""The network, and the features that its gradient gives."""
