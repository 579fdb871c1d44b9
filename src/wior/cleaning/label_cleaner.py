"""`LabelCleaner`: finds wrong labels with a small verified set, as an estimator of scikit-learn."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from wior import checks
from wior.cleaning import choosing
from wior.cleaning.choosing import Choice, Length, Trial
from wior.cleaning.designs import DESIGNS, Material, Setting
from wior.cleaning.models import Custom, Network, all_log_probabilities, tempered
from wior.cleaning.second_opinion import ROUNDS, Cuts, members_of, second_opinion
from wior.cleaning.tables import UNKNOWN, Job
from wior.orders import Order
from wior.running.progress import pieces

WEIGHTINGS = ("auto", *DESIGNS)
STARTS = ("trusting", "counted")
MODELS = ("auto", "linear", "mlp")
NO_VERIFIED_ROW = "no verified row of"


class LabelCleaner(ClassifierMixin, BaseEstimator):
    """Finds wrong labels with a small set of rows whose labels are verified.

    A model is learned from all rows together with what is wrong with their labels, so that it is right on the verified
    rows: a bilevel problem, solved by WiOR-BO. Systematic errors are found too, since the verified rows, and not the
    majority, say what is right.

    How to learn is chosen by verified rows that are held out; what is not `None` or "auto" is taken as it is given.

    Parameters
    ----------
    weighting : "auto", "noise", "function" or "row". What is learned of the labels: a table of which class is labeled
        how, a weight as a function of the
        model's output and the given label, or a weight for each row (for many verified rows).
    model : "auto", "linear", "mlp", or a `Custom(function, params)` of logits as one's own function of parameters and
        features.
    hidden : widths of the hidden layers of "mlp".
    start : "trusting" or "counted", where a noise model begins: most labels are right, or as a model of the verified
        rows alone sees them. outer_lr, inner_lr : the step sizes η and γ. `verified_share`: λ, the weight of verified
        rows in a noise model's inner loss.
    l2 : the penalty of the model's weights.
    epochs : passes over the training rows. `batch_size`: rows in a step.
    folds : of the verified rows, for choosing. `parts`: of the training rows, each judged also by a model that learned
        from the others; 0: one model judges all.
    rounds : how often models trained plainly on the rows that are kept judge the labels again; 0: never.
    threshold : labels that are right with a smaller probability are flagged.
    order : in which the rows are visited, one of `wior.orders`.
    random_state : an integer; the same one gives the same numbers.
    progress : True for a bar. `checkpoint`: a folder from which an interrupted `fit` resumes.

    Attributes
    ----------
    scores_ : (rows,) the probability that the given label is right; low means probably wrong.
    flagged_ : (rows,) of bool, scores below `threshold`. `suggested_labels_`: the likeliest label of every row, and
        `suggested_codes_` its place in `classes_`. `confidence_`: its probability.
    weights_ : (rows,) the weight of every row in training.
    noise_ : (classes, classes) the share of the rows of a class (row) that were given a label (column).
    trusted_classes_ : classes without a verified row; their labels are taken as they are, and never flagged or
        suggested for others.
    choice_ : what was chosen. `trials_`: what it was chosen from.
    """

    def __init__(
        self,
        *,
        weighting: str = "auto",
        model: str | Custom = "auto",
        hidden: tuple[int, ...] | None = None,
        start: str | None = None,
        outer_lr: float | None = None,
        inner_lr: float | None = None,
        verified_share: float | None = None,
        l2: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        folds: int | None = None,
        parts: int | None = None,
        rounds: int | None = None,
        threshold: float = 0.5,
        order: Order | None = None,
        random_state: int = 0,
        progress: bool = False,
        checkpoint: str | Path | None = None,
    ):
        self.weighting = weighting
        self.model = model
        self.hidden = hidden
        self.start = start
        self.outer_lr = outer_lr
        self.inner_lr = inner_lr
        self.verified_share = verified_share
        self.l2 = l2
        self.epochs = epochs
        self.batch_size = batch_size
        self.folds = folds
        self.parts = parts
        self.rounds = rounds
        self.threshold = threshold
        self.order = order
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any, X_verified: Any = None, y_verified: Any = None) -> LabelCleaner:
        """Learns from rows `X` with labels `y`, some of them wrong, and from other rows whose labels are right."""
        self._check_parameters()
        if X_verified is None or y_verified is None:
            missing = "X_verified" if X_verified is None else "y_verified"
            raise ValueError(f"{missing} must be given: a small set of rows whose labels are known to be right")
        X, given = self._rows(X, y)
        X_verified, verified = self._rows(X_verified, y_verified, "X_verified", "y_verified")
        if (given.dtype.kind in "OUT") != (verified.dtype.kind in "OUT"):
            raise ValueError(
                f"y and y_verified must both be texts or both be numbers, got the dtypes {given.dtype} and "
                f"{verified.dtype}"
            )
        self.classes_, codes = np.unique(np.concatenate([given, verified]), return_inverse=True)
        return self._learn(X, codes[: len(given)], X_verified, codes[len(given) :])

    def fit_job(self, job: Job) -> LabelCleaner:
        """As `fit`, on the rows of a job that are to be judged, whose labels are encoded already."""
        self._check_parameters()
        judged = job.judged
        everything = len(judged) == len(job.given)  # then no copy is made of what may be large
        features = self._features(job.features if everything else job.features[judged], reset=True)
        self.classes_ = np.array(job.classes)
        known = np.flatnonzero(job.right != UNKNOWN)
        rows = np.concatenate([job.features[known], job.outside_features.reshape(-1, job.features.shape[1])])
        verified = self._features(rows, reset=False)
        return self._learn(features, job.given[judged], verified, np.concatenate([job.right[known], job.outside]))

    def _learn(self, X: np.ndarray, given: np.ndarray, X_verified: np.ndarray, verified: np.ndarray) -> LabelCleaner:
        """Learns from labels that are places in `classes_`."""
        given, verified = given.astype(np.int32), verified.astype(np.int32)
        trusted = self._check_classes(given, verified)
        model = self._model(X, len(self.classes_))
        self._check_model(model, X, len(self.classes_))
        material = Material(
            model,
            jax.device_put(X),  # `jnp.asarray` would hold it twice for a moment
            jnp.asarray(given),
            jnp.arange(len(given), dtype=jnp.int32),
            (jnp.asarray(X_verified), jnp.asarray(verified)),
            trusted,
            self._l2(len(given)),
            int(self.random_state),
        )
        length, folds = self._length(len(given)), self._folds(len(given), len(verified))
        settings = self._settings()
        order = self.order if self.order is not None else choosing.DEFAULT_ORDER
        heats = len(settings) if len(settings) > 1 else 0
        parts = self._parts(len(given), settings[0].weighting)
        rounds = (ROUNDS if self.rounds is None else int(self.rounds)) if parts else 0
        again = rounds * parts * members_of(len(given)) + 1 if rounds else 0
        with self._progress((heats + min(len(settings), choosing.FINALISTS)) * folds + 1 + parts + again) as begin:
            run = choosing.checkpoints(None if self.checkpoint is None else Path(self.checkpoint), begin)
            choice = choosing.choose(material, settings, length, folds, order, run)
            posterior = self._finish(material, choice, length, order, run)
            if rounds:
                posterior = self._judge_again(material, posterior, rounds, parts, folds, begin)
        self.scores_ = posterior[np.arange(len(given)), given]
        self.flagged_ = self.scores_ < self.threshold
        self.suggested_codes_ = posterior.argmax(1)
        self.suggested_labels_ = self.classes_[self.suggested_codes_]
        self.confidence_ = posterior.max(1)
        self.trusted_classes_ = self.classes_[material.trusted]
        self.choice_ = {
            **choice.setting._asdict(),
            "steps": choice.steps,
            "steps_at_most": length.steps,
            "batch_size": length.batch,
            "epochs": round(choice.steps * length.batch / len(given), 3),
            "folds": folds,
            "parts": parts,
            "rounds": rounds,
            "held_out_loss": choice.loss,
            "l2": material.l2,
            "model": "custom" if isinstance(model, Custom) else "mlp" if model.hidden else "linear",
            "hidden": [] if isinstance(model, Custom) else list(model.hidden),
        }
        self.trials_: list[Trial] = choice.trials
        return self

    def _finish(
        self, material: Material, choice: Choice, length: Length, order: Order, run: choosing.Run
    ) -> np.ndarray:
        """Learns from all verified rows; every label is judged by that model and by one that did not learn from it:
        (rows, classes).
        """
        exactly = length._replace(steps=choice.steps)
        taught = choosing.teach(material)

        def learned(own: Material, name: str) -> tuple[Any, Any]:
            watch = run(name, choice.steps)
            if not choice.steps:
                return DESIGNS[choice.setting.weighting].start(own, choice.setting, taught), taught
            result = choosing.learn(own, choice.setting, exactly, taught, order, watch)
            if result is None:
                raise ValueError(
                    f"the model diverged with all verified rows ({choice.setting.describe()}); set a smaller inner_lr "
                    "or outer_lr"
                )
            return result.x, result.y

        read = DESIGNS[choice.setting.weighting].read
        x, y = learned(material, "all rows")
        posterior, weights, self.noise_ = read(material, x, y, choice.temperature)
        given = np.asarray(material.given)
        parts = self._parts(len(given), choice.setting.weighting)
        for part, (rows, judged) in enumerate(
            choosing.parts_of_rows(len(given), parts, material.seed) if parts else ()
        ):
            own = material._replace(rows=jnp.asarray(rows.astype(np.int32)))
            x, others = learned(own, f"all but part {part + 1} of {parts}")
            judged_material = material._replace(features=material.features[judged], given=material.given[judged])
            unseen, weights[judged], _ = read(judged_material, x, others, choice.temperature)
            # the model of all rows knows more, that of the others has not learned the label by heart
            both = np.sqrt(np.maximum(posterior[judged] * unseen, np.finfo(np.float32).tiny))
            posterior[judged] = both / both.sum(1, keepdims=True)
        self.model_, self.params_, self.temperature_ = material.model, y, choice.temperature
        self.weights_ = weights
        return posterior

    def _judge_again(
        self, material: Material, posterior: np.ndarray, rounds: int, parts: int, folds: int, begin: Any
    ) -> np.ndarray:
        labels = np.asarray(material.verified[1])
        cuts = Cuts(
            lambda number: choosing.parts_of_rows(len(posterior), parts, material.seed + number),
            lambda number: choosing.fold_places(labels, folds, material.seed + number),
        )
        opinion = second_opinion(material, posterior, self.noise_, rounds, cuts, begin)
        self.noise_, self.params_, self.temperature_ = opinion.table, opinion.params, opinion.temperature
        return opinion.posterior

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, (rows, classes), in the order of `classes_`."""
        check_is_fitted(self, "params_")
        logs = all_log_probabilities(self.model_, self.params_, self._features(X, reset=False))
        return np.exp(tempered(logs, self.temperature_))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of every row."""
        probabilities = self.predict_proba(X)  # which says so where nothing was learned yet
        return self.classes_[probabilities.argmax(1)]

    def _features(self, X: Any, reset: bool) -> np.ndarray:
        own = isinstance(self.model, Custom)
        dtype = None if getattr(X, "dtype", None) == np.uint8 else np.float32
        return validate_data(self, X, reset=reset, dtype=dtype, allow_nd=own, ensure_2d=not own)

    def _rows(self, X: Any, y: Any, name: str = "X", labels: str = "y") -> tuple[np.ndarray, np.ndarray]:
        with _named(name):
            features = self._features(X, reset=name == "X")
        with _named(labels):
            y = column_or_1d(y, warn=True)
            _refuse_mixed(y)
            check_classification_targets(y)
            check_array(y.reshape(-1, 1), dtype=None, ensure_all_finite=y.dtype.kind in "fc", input_name=labels)
        if len(y) != len(features):
            raise ValueError(f"{labels} must have one label for each row of {name}, got {len(y)} for {len(features)}")
        return features, y

    def _check_classes(self, given: np.ndarray, verified: np.ndarray) -> np.ndarray:
        """Which classes have no verified row."""
        names = self.classes_
        if len(names) < 2:
            raise ValueError(f"y must have at least two classes, got one class only: {str(names[0])!r}")
        known = np.bincount(verified, minlength=len(names)) > 0
        if known.sum() < 2:
            raise ValueError(
                f"y_verified must have at least two classes, got one class only: {str(names[known][0])!r}; verify some "
                "rows of the others"
            )
        if not known.all():
            warnings.warn(
                f"{NO_VERIFIED_ROW} {_listed(names[~known])}: these labels are taken as they are",
                stacklevel=3,
            )
        return ~known

    def _model(self, X: np.ndarray, classes: int) -> Network | Custom:
        if isinstance(self.model, Custom):
            return self.model.as_now(X)
        hidden = () if self.model == "linear" else self.hidden
        if hidden is None:
            hidden = (64,) if len(X) < 5000 else (256, 128) if X.shape[1] >= 200 else (128,)
        return Network.standardizing(X, tuple(int(width) for width in hidden), classes)

    def _check_model(self, model: Network | Custom, X: np.ndarray, classes: int) -> None:
        if isinstance(model, Custom):
            shape = np.shape(model.logits(model.init(0), jnp.asarray(X[:1])))
            if shape != (1, classes):
                raise ValueError(
                    f"model must return logits (rows, {classes}), one for each class; got shape {shape} for one row"
                )

    def _l2(self, rows: int) -> float:
        return float(np.clip(1 / rows, 1e-5, 1e-2)) if self.l2 is None else float(self.l2)

    def _length(self, rows: int) -> Length:
        batch = self.batch_size or int(np.clip(2 ** round(np.log2(max(rows / 100, 1))), 32, 512))
        batch = min(batch, rows)
        steps = int(np.clip(15 * rows / batch, 1500, 6000)) if self.epochs is None else -(-self.epochs * rows // batch)
        steps = max(steps, 1)
        return Length(steps, batch, -(-steps // choosing.RECORDS))

    def _folds(self, rows: int, verified: int) -> int:
        if verified < 4:
            raise ValueError(f"X_verified must have at least 4 rows, got {verified}")
        if self.folds is None:
            return min(5 if rows <= 5000 else 3, verified // 2)
        if not 2 <= self.folds <= verified:
            raise ValueError(f"folds must lie between 2 and the number of verified rows, {verified}; got {self.folds}")
        return int(self.folds)

    def _parts(self, rows: int, weighting: str) -> int:
        if weighting == "row":
            return 0  # a weight is of a row that was learned from
        parts = (5 if rows <= 5000 else 3 if rows <= 100_000 else 0) if self.parts is None else int(self.parts)
        return min(parts, rows) if rows > 1 else 0

    def _settings(self) -> list[Setting]:
        """The candidates, with what the user has decided."""
        weighting = choosing.AUTOMATIC if self.weighting == "auto" else self.weighting
        kept = [one for one in choosing.SETTINGS if one.weighting == weighting]
        if self.start is not None:
            kept = [one for one in kept if one.weighting != "noise" or one.start == self.start]
        decided = {"outer_lr": self.outer_lr, "inner_lr": self.inner_lr, "share": self.verified_share}
        changes: dict[str, Any] = {name: float(value) for name, value in decided.items() if value is not None}
        return list(dict.fromkeys(one._replace(**changes) for one in kept))

    def _check_parameters(self) -> None:
        for name, value, known in (
            ("weighting", self.weighting, WEIGHTINGS),
            ("start", self.start, (None, *STARTS)),
            ("model", "auto" if isinstance(self.model, Custom) else self.model, MODELS),
        ):
            if value not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(str(one) for one in known)}"
                    + (" or a wior.cleaning.Custom" if name == "model" else "")
                    + f"; got {value!r}"
                )
        for name in ("outer_lr", "inner_lr"):
            if getattr(self, name) is not None:
                checks.positive_number(name, getattr(self, name))
        for name in ("l2", "verified_share"):
            if getattr(self, name) is not None:
                checks.non_negative_number(name, getattr(self, name))
        for name in ("epochs", "batch_size", "folds"):
            if getattr(self, name) is not None:
                checks.positive_integer(name, getattr(self, name))
        if self.parts is not None and (
            not isinstance(self.parts, (int, np.integer)) or self.parts < 0 or self.parts == 1
        ):
            raise ValueError(f"parts must be 0 or an integer of at least 2, got {self.parts!r}")
        if self.rounds is not None and self.rounds != 0:
            checks.positive_integer("rounds", self.rounds)
        if not (isinstance(self.threshold, (int, float, np.floating)) and 0 < self.threshold < 1):
            raise ValueError(f"threshold must lie between 0 and 1, got {self.threshold!r}")
        if self.order is not None and not isinstance(self.order, Order):
            raise TypeError(f"order must be one of wior.orders, got {self.order!r}")
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, (int, np.integer)):
            raise TypeError(f"random_state must be an integer, got {self.random_state!r}")
        if not 0 <= self.random_state < 2**63:
            raise ValueError(f"random_state must lie between 0 and 2**63 - 1, got {self.random_state!r}")
        if not isinstance(self.checkpoint, (str, os.PathLike, type(None))):
            raise TypeError(f"checkpoint must be a folder or None, got {self.checkpoint!r}")
        if self.hidden is not None and not _are_widths(self.hidden):
            raise ValueError(f"hidden must be widths of layers, positive integers such as (64,), got {self.hidden!r}")

    @contextlib.contextmanager
    def _progress(self, runs: int) -> Iterator[Any]:
        if callable(self.progress):
            yield lambda name, steps: self.progress  # a report of the caller's own
            return
        with pieces(bool(self.progress), "learning", runs) as begin:
            yield begin


@contextlib.contextmanager
def _named(argument: str) -> Iterator[None]:
    """What scikit-learn says of X and y, said of the verified rows too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if argument in ("X", "y"):
            raise
        raise type(error)(f"{argument}: {error}") from error


def _refuse_mixed(y: np.ndarray) -> None:
    texts = [isinstance(label, str) for label in y] if y.dtype == object else []
    if any(texts) and not all(texts):
        row = texts.index(False)
        raise ValueError(f"y must be texts or numbers alone, got {y[row]!r} in row {row}")


def _are_widths(hidden: Any) -> bool:
    return isinstance(hidden, (tuple, list)) and all(isinstance(w, (int, np.integer)) and w > 0 for w in hidden)


def _listed(names: Any) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:5])
    return f"class {shown}" if len(names) == 1 else f"classes {shown}" + (" and others" if len(names) > 5 else "")
