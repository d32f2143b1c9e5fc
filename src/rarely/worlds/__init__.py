"""Where policies are played: the paper's problems, any labelled table, and worlds of one's own."""

from rarely.worlds.datasets import DATASETS, Dataset, DataUnavailable
from rarely.worlds.gallery import GALLERY
from rarely.worlds.protocol import Rounds, World
from rarely.worlds.recommender import Day, Recommender
from rarely.worlds.synthetic import Cosine, Quadratic
from rarely.worlds.table import Table, TableWorld

__all__ = [
    "DATASETS",
    "GALLERY",
    "Cosine",
    "DataUnavailable",
    "Dataset",
    "Day",
    "Quadratic",
    "Recommender",
    "Rounds",
    "Table",
    "TableWorld",
    "World",
]
