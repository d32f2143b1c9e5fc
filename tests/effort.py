"""How much tests try: a few cases by themselves, many where EXAMPLES=100 asks for them, as the workflows do."""

import os

MANY = int(os.environ.get("EXAMPLES", "6")) >= 100
