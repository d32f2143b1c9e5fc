"""Problems to play policies on: the paper's, any labelled table, and worlds of your own."""

from rarely.worlds.datasets import DATASETS, Dataset, DataUnavailable
from rarely.worlds.gallery import GALLERY, PLAIN_ARMS
from rarely.worlds.protocol import Rounds, World
from rarely.worlds.recommender import Day, Recommender
from rarely.worlds.synthetic import Cosine, Quadratic
from rarely.worlds.table import Table, TableWorld

__all__ = [
    "DATASETS", "GALLERY", "PLAIN_ARMS", "Cosine", "DataUnavailable", "Dataset", "Day", "Quadratic", "Recommender",
    "Rounds", "Table", "TableWorld", "World",
]  # fmt: skip
