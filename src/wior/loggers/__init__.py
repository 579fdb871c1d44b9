"""Where records go while a run makes them: the argument `loggers` of `wior.solve`, a list.

`JsonLines` and `Csv` write files. `TensorBoard`, `WandB` and `MLflow` need `pip install 'wior[loggers]'`.
"""

from wior.loggers.csv_file import Csv
from wior.loggers.json_lines import JsonLines
from wior.loggers.logger import Logger
from wior.loggers.mlflow import MLflow
from wior.loggers.tensorboard import TensorBoard
from wior.loggers.wandb import WandB

__all__ = ["Csv", "JsonLines", "Logger", "MLflow", "TensorBoard", "WandB"]
