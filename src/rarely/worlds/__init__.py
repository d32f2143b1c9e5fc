"""Problems to play policies on: the paper's, any labelled table, and worlds of your own."""

from rarely.worlds.by_name import WORLD_SETS, find_world
from rarely.worlds.datasets import DATASETS, Dataset, DataUnavailable
from rarely.worlds.everyday import EVERYDAY
from rarely.worlds.gallery import GALLERY, PLAIN_ARMS
from rarely.worlds.protocol import Rounds, World
from rarely.worlds.recommender import Day, Recommender
from rarely.worlds.synthetic import Cosine, Quadratic
from rarely.worlds.table import Table, TableWorld

__all__ = [
    "DATASETS", "EVERYDAY", "GALLERY", "PLAIN_ARMS", "WORLD_SETS", "Cosine", "DataUnavailable", "Dataset", "Day",
    "Quadratic", "Recommender", "Rounds", "Table", "TableWorld", "World", "find_world",
]  # fmt: skip
