"""Torch modules as models of policies: `pip install '.[torch]'` from the checkout."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError("rarely.torch needs PyTorch: pip install '.[torch]' in the checkout.", name="torch")

from rarely.torch.model import Module

__all__ = ["Module"]
