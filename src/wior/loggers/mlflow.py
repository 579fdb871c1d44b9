"""Records in a run of MLflow."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wior.loggers.extras import imported
from wior.loggers.logger import Logger, Record


class MLflow(Logger):
    """Logs each record to MLflow, along the steps.

    It needs `pip install 'wior[loggers]'`, which brings mlflow-skinny: enough for a server of MLflow, while a database
    on this machine needs the package mlflow. To have a resumed run continue the same one there, give its `run_id`;
    steps that the run there has are not logged again.

    Parameters
    ----------
    experiment : str, default "wior"
        The experiment there, which is made where it does not exist.
    run_name : str, optional
        The name of the run.
    run_id : str, optional
        A run that is there already.
    tracking_uri : str, optional
        Where MLflow keeps its runs; as MLflow is set up where it is not given.

    Examples
    --------
    >>> import wior
    >>> log = wior.loggers.MLflow("bilevel", tracking_uri="http://localhost:5000")  # doctest: +SKIP
    >>> wior.solve(problem, method, x0, y0, steps=1000, loggers=[log])  # doctest: +SKIP
    """

    def __init__(
        self,
        experiment: str = "wior",
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        tracking_uri: str | None = None,
    ):
        self.experiment, self.run_name = experiment, run_name
        self.run_id, self._given = run_id, run_id is not None
        self._package = imported("mlflow", "MLflow")
        self._client = self._package.MlflowClient(tracking_uri=tracking_uri)
        self._last = -1

    def begin(self, columns: Sequence[str], first: int, earlier: Sequence[Record]) -> None:
        self._last = -1
        continues = self._given or bool(first or earlier)
        if self.run_id is None or not continues:
            found = self._client.get_experiment_by_name(self.experiment)
            place = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
            self.run_id = self._client.create_run(place, run_name=self.run_name).info.run_id
        else:
            self._client.update_run(self.run_id, status="RUNNING")
            there = self._client.get_metric_history(self.run_id, "outer_passes")
            self._last = max((one.step for one in there), default=-1)
        for record in earlier:
            self.record(record)

    def record(self, record: Record) -> None:
        step = int(record["step"])
        if step <= self._last:
            return
        now = int(1000 * time.time())
        kind = self._package.entities.Metric
        numbers = [kind(name, float(value), now, step) for name, value in record.items() if name != "step"]
        self._client.log_batch(self.run_id, metrics=numbers)
        self._last = step

    def end(self, stopped_by: str) -> None:
        self._client.set_tag(self.run_id, "stopped_by", stopped_by)
        failed = stopped_by in ("error", "divergence")
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")
