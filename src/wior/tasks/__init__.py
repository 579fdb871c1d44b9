"""Tasks of the paper as problems that `solve` takes."""

from wior.tasks.data_cleaning import DataCleaning, data_cleaning
from wior.tasks.networks import mlp, mlp_init

__all__ = ["DataCleaning", "data_cleaning", "mlp", "mlp_init"]
