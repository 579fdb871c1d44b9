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
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from wior import checks
from wior.cleaning import arguments, choosing, judging
from wior.cleaning.arguments import is_classifier
from wior.cleaning.calibration import best_threshold
from wior.cleaning.case import ArraysCase, Case, rows_of
from wior.cleaning.choosing import Choice, Length, Trial
from wior.cleaning.designs import DESIGNS, Material, Setting, counted_table
from wior.cleaning.estimates import Pairs, estimates
from wior.cleaning.models import Custom, Network, all_log_probabilities, tempered
from wior.cleaning.opinions.rows import UNKNOWN, Rows
from wior.cleaning.opinions.taught import TaughtClassifier, TaughtNetwork
from wior.cleaning.second_opinion import ROUNDS, Cuts, members_of, second_opinion
from wior.cleaning.tables import Job
from wior.orders import Order
from wior.running.progress import pieces

WEIGHTINGS = ("auto", *DESIGNS)
STARTS = ("trusting", "counted")
MOST_LIKELY = 5  # labels of a row that are kept
MODELS = ("auto", "linear", "mlp")
CLOSED_FORMS = "closed forms"
NO_VERIFIED_ROW = "no verified row of"
USELESS = (
    "the features say nothing of the right labels: on the verified rows no model is better than the shares of the "
    "classes; give other features or embeddings, or verify more rows"
)


class LabelCleaner(ClassifierMixin, BaseEstimator):
    """Finds wrong labels, best with a small set of rows whose right labels are known.

    Several models say what each label should be: closed-form ones of the given and of the verified labels, one that
    learns together with the table of which class is labeled how, and one that is taught by the rows that are kept. They
    are weighted, and their probabilities calibrated, by the verified rows. Where verified rows lie beside the table
    only (`X_verified`), which does not say how labels are wrong, one model and that table are learned as a bilevel
    problem, solved by WiOR-BO. How to learn is chosen by verified rows that are held out; what is not `None` or "auto"
    is taken as it is given.

    Parameters
    ----------
    weighting : {"auto", "noise", "function", "row"}
        What is learned of the labels. "auto": as above. The others are bilevel problems: a table of which class is
        labeled how, a weight as a function of the model's output and the given label, or a weight for each row.
    model : {"auto", "linear", "mlp"}, Custom or a classifier of scikit-learn
        What is taught by the rows that are kept: a network, `wior.cleaning.Custom(function, params)` for a function of
        your own that returns logits, or anything with `fit` and `predict_proba`.
    hidden : tuple of int, optional
        Widths of the hidden layers of the network.
    start : {"trusting", "counted"}, optional
        Where the bilevel noise model begins: most labels are right, or as a model of the verified rows sees them.
    outer_lr : float, optional
        The outer step size η of a bilevel problem.
    inner_lr : float, optional
        Its inner step size γ.
    verified_share : float, optional
        λ, the weight of the verified rows in the inner loss of the bilevel noise model.
    l2 : float, optional
        The penalty of the weights of a bilevel problem's model.
    epochs : int, optional
        Passes of a bilevel problem over the rows, at most.
    batch_size : int, optional
        Rows in a step of it.
    folds : int, optional
        Of the verified rows, by which a bilevel problem is chosen.
    parts : int, optional
        Of the rows, in a bilevel problem: each is judged also by a model that learned from the others. 0: by one model
        of all.
    rounds : int, optional
        How often, after a bilevel problem, models taught by kept rows judge the labels again.
    threshold : float, optional
        Labels that are right with a smaller probability are flagged. None: the one with the highest expected F1; 0.5
        after a bilevel problem.
    effort : {"usual", "fast", "thorough"}
        "fast": closed-form models alone. "thorough": models of kept rows are taught twice, and a bilevel noise model
        may join.
    order : Order, optional
        In which a bilevel problem visits the rows, one of `wior.orders`.
    random_state : int
        The same one gives the same numbers.
    progress : bool
        Whether a bar is shown.
    checkpoint : path, optional
        A folder from which an interrupted `fit` of a bilevel problem resumes.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The labels, sorted.
    scores_ : array of shape (rows,)
        The probability that the given label is right; low means probably wrong. 1 or 0 for a verified row.
    threshold_ : float
        The score below which a label is flagged.
    flagged_ : array of bool of shape (rows,)
        The labels that are probably wrong, and those that are known to be.
    suggested_labels_ : array of shape (rows,)
        The likeliest other label of a flagged row, the right one of a verified row, else the given one.
    suggested_codes_ : array of int of shape (rows,)
        Their places in `classes_`.
    confidence_ : array of shape (rows,)
        The probability of the suggested label.
    estimates_ : Estimates or None
        How many labels of the table are wrong (`wrong`), and which share of flags is right (`precision`) and of wrong
        labels is flagged (`recall`), each with its 95% interval `low`, `value`, `high`. None with fewer than ten pairs.
    helpful_ : bool
        Whether the features say something of the right labels, as far as verified rows can tell. If not, no row is
        flagged that nobody verified.
    disagreeing_ : float
        The share of labels that a model of the given labels does not foresee; NaN after a bilevel problem.
    weights_ : array of shape (rows,)
        The weight of every row in training; the score, but for bilevel problems.
    noise_ : array of shape (classes, classes) or None
        The share of the rows of a class (row) that were given a label (column). None for more than 200 classes.
    trusted_classes_ : array
        After a bilevel problem, classes without a verified row: their labels are taken as they are.
    choice_ : dict
        What was chosen, with the weights of the opinions and the loss on verified rows.
    trials_ : list
        What a bilevel problem was chosen from.

    Examples
    --------
    Of 300 rows a fifth is labeled wrong, and 40 rows were looked at, whose right labels are known:

    >>> import numpy as np
    >>> import wior
    >>> rng = np.random.default_rng(0)
    >>> right = rng.integers(0, 2, 300)
    >>> X = 3 * right[:, None] + rng.normal(size=(300, 4))
    >>> y = np.where(np.arange(300) % 5 == 0, 1 - right, right)
    >>> y_verified = np.where(np.arange(300) < 40, right, np.nan)
    >>> cleaner = wior.LabelCleaner(effort="fast").fit(X, y, y_verified=y_verified)
    >>> bool(np.mean(cleaner.flagged_ == (y != right)) > 0.98)
    True
    >>> cleaner.suggested_labels_[:6] == right[:6]
    array([ True,  True,  True,  True,  True,  True])
    >>> cleaner.estimates_.wrong.low < 60 < cleaner.estimates_.wrong.high
    True
    """

    def __init__(
        self,
        *,
        weighting: str = "auto",
        model: Any = "auto",
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
        threshold: float | None = None,
        effort: str = "usual",
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
        self.effort = effort
        self.order = order
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(
        self, X: Any, y: Any, X_verified: Any = None, y_verified: Any = None, *,
        pred_probs: Any = None, chances: Any = None,
    ) -> LabelCleaner:  # fmt: skip
        """Learns from rows with labels, some of them wrong.

        Parameters
        ----------
        X : array of shape (rows, features)
            The rows. None where `pred_probs` are given.
        y : array of shape (rows,)
            Their labels, some of them wrong.
        X_verified : array of shape (verified rows, features), optional
            Other rows whose labels are right.
        y_verified : array, optional
            With `X_verified` its labels. Alone: the right label of every row of `X`, missing (None or NaN) where nobody
            looked. Such pairs of a given and a right label say how labels are wrong, how many are, and how far the
            scores can be trusted. Without any verified row the result is a first estimate.
        pred_probs : array of shape (rows, classes), optional
            Probabilities of the labels in `y` by a model of your own, out of fold, for classes in sorted order.
        chances : array of shape (rows,), optional
            With which chance each verified row was drawn, where these differ (as `wior clean` draws them); NaN: nobody
            knows, 0: it was looked at because of its score.

        Returns
        -------
        LabelCleaner
            Itself.
        """
        self._check_parameters()
        if X is None and pred_probs is None:
            raise ValueError("X must be given, or pred_probs in its place")
        if X is None and X_verified is not None:
            raise ValueError("X_verified needs X, rows with the same features; with pred_probs alone give y_verified")
        if X_verified is not None and y_verified is None:
            raise ValueError("y_verified must be given with X_verified: the right labels of its rows")
        if X is None:
            given = arguments.labels_of(y)
            features = np.zeros((len(given), 0), np.float32)
        else:
            features, given = self._rows(X, y)
        n, known, beside, others = len(given), np.zeros(len(given), bool), features[:0], given[:0]
        if X_verified is not None:
            beside, others = self._rows(X_verified, y_verified, "X_verified", "y_verified")
            arguments.require_one_kind(given, others)
        elif y_verified is not None:
            known, others = arguments.right_labels(y_verified, given)
        self.classes_, codes = np.unique(np.concatenate([given, others]), return_inverse=True)
        codes, right = codes.astype(np.int32), np.full(n, UNKNOWN, np.int32)
        if X_verified is None:
            right[known] = codes[n:]
        probabilities = None if pred_probs is None else arguments.checked_probabilities(pred_probs, n, self.classes_)
        numbers = codes[n:] if X_verified is not None else codes[:0]
        chances = arguments.checked_chances(chances, n)
        return self._fit_case(ArraysCase(features, codes[:n], right, known, chances, beside, numbers, probabilities))

    def fit_job(self, job: Job) -> LabelCleaner:
        """As `fit`, on a job of `wior clean`, whose labels are encoded already.

        Parameters
        ----------
        job : Job
            What `wior.cleaning.tables.read` returns.

        Returns
        -------
        LabelCleaner
            Itself.
        """
        self._check_parameters()
        self.classes_ = np.array(job.classes)
        if job.features.size:
            self._features(job.features, reset=True)
        if len(job.outside):
            self._features(job.outside_features, reset=False)
        return self._fit_case(job)

    def _fit_case(self, case: Case) -> LabelCleaner:
        arguments.require_two_classes(self.classes_)
        self.with_features_ = case.features.size > 0
        if hasattr(self, "says_"):
            del self.says_  # of an earlier fit
        if self._by_opinions(case):
            return self._judge(case)
        judged = np.flatnonzero(case.right == UNKNOWN)
        if not len(judged):
            raise ValueError("y_verified has a label for every row of X; none is left to be judged")
        if not self.with_features_:
            raise ValueError(f"weighting={self.weighting!r} needs features; probabilities alone are for 'auto'")
        known = np.flatnonzero(case.right != UNKNOWN)
        everything = not len(known)  # then no copy is made of what may be large
        sets = [rows for rows in (case.features[known], case.outside_features) if len(rows)]
        verified = sets[0] if len(sets) == 1 else np.concatenate(sets) if sets else case.features[:0]
        labels = np.concatenate([case.right[known], case.outside])
        if not len(labels):
            raise ValueError(
                f"weighting={self.weighting!r} needs verified rows; weighting='auto' gives a first estimate without any"
            )
        self._learn(case.features if everything else case.features[judged], case.given[judged], verified, labels)
        if not everything:
            self._with_known(case, judged)
        return self

    def _by_opinions(self, case: Case) -> bool:
        """Whether opinions judge, or a bilevel design, the better one where no pairs say how labels are wrong."""
        if self.weighting != "auto":
            return False
        some_known = len(case.outside) > 0 or bool((case.right != UNKNOWN).any())
        special = case.probabilities is not None or self.effort == "fast" or is_classifier(self.model)
        return special or not some_known or bool((case.paired & (case.right != UNKNOWN)).any())

    def _judge(self, case: Case) -> LabelCleaner:
        """By opinions of several models, combined and calibrated by the verified rows."""
        n, m, classes, seed = len(case.given), len(case.outside), len(self.classes_), int(self.random_state)
        rows = rows_of(case, classes, seed)
        asked_for = is_classifier(self.model) or isinstance(self.model, Custom)
        # without verified rows nothing says that a taught model knows more
        learner, model = self._learner(rows, classes) if rows.known.any() or asked_for else (None, CLOSED_FORMS)
        how = judging.How(learner, judging.LEARNERS[self.effort], None, seed)
        pieces_of_work = 1 + judging.passes_at_most(rows) + judging.learners_at_most(rows, how) + 1
        probabilities = case.probabilities
        if probabilities is not None and m:
            probabilities = np.concatenate([probabilities, np.full((m, classes), 1 / classes, np.float32)])
        with self._progress(pieces_of_work) as begin:
            judged = judging.judge(rows, how, probabilities, lambda what: _told(begin, what))
        known = case.right != UNKNOWN
        scores = judged.calibrated.scores[:n]
        scores[known] = case.right[known] == case.given[known]
        unknown = np.flatnonzero(~known)
        self.threshold_ = best_threshold(scores[unknown]) if self.threshold is None else float(self.threshold)
        self.helpful_ = not judging.unhelpful(judged.combined)
        if not self.helpful_:
            warnings.warn(f"{USELESS}. Nothing is flagged", stacklevel=4)
        self.scores_ = scores
        self.flagged_ = (scores < self.threshold_) & (self.helpful_ | known)
        self._suggest(judged.posterior[:n], case)
        probabilities = _calibrated(judged.posterior[:n], case, scores)
        self._keep_likeliest(probabilities)
        self.weights_ = scores
        self.noise_ = counted_table(probabilities, case.given) if judged.combined.tables.ndim == 3 else None
        self.trusted_classes_ = self.classes_[:0]
        pairs = rows.pairs
        self.estimates_ = estimates(
            Pairs(case.right[pairs] != case.given[pairs], judged.calibrated.unseen[pairs], rows.weights[pairs]),
            scores[unknown], int((scores[known] == 0).sum()), self.threshold_,
        )  # fmt: skip
        self.says_, self.disagreeing_ = judged.says, judged.disagreeing
        self.choice_ = {
            "weighting": "opinions", "effort": self.effort, "opinions": judged.combined.weights,
            "start": judged.start, "passes": judged.passes, "held_out_loss": judged.combined.loss,
            "held_out_gain": float(judged.combined.gains.mean()) if len(judged.combined.gains) else float("nan"),
            "parts": rows.count_of_parts, "rounds": how.learners.count("taught"), "model": model,
        }  # fmt: skip
        self.trials_: list[Trial] = []
        return self

    def _suggest(self, posterior: np.ndarray, case: Case) -> None:
        """The given label of a row that is not flagged, else the likeliest other one, or the right one."""
        rows = np.arange(len(case.given))
        others = posterior.copy()
        others[rows, case.given] = -1  # not even where nothing else is likely
        other = others.argmax(1)
        others[rows, case.given] = 0
        share = others[rows, other] / np.maximum(others.sum(1), 1e-30)
        known = case.right != UNKNOWN
        self.suggested_codes_ = np.where(self.flagged_, other, case.given)
        self.suggested_codes_[known] = case.right[known]
        self.confidence_ = np.where(self.flagged_, (1 - self.scores_) * share, self.scores_)
        self.confidence_[known] = 1.0
        self.suggested_labels_ = self.classes_[self.suggested_codes_]

    def likeliest(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest labels of every row of the table, as places in `classes_`, and their probabilities.

        Parameters
        ----------
        count : int
            How many labels of each row, at most.

        Returns
        -------
        Two arrays of shape (rows, count), the likeliest label first.
        """
        check_is_fitted(self, "scores_")
        return self.likely_[:, :count], self.likelihoods_[:, :count]

    def _keep_likeliest(self, probabilities: np.ndarray) -> None:
        """The likeliest labels by the probabilities (rows, classes)."""
        count = min(MOST_LIKELY, probabilities.shape[1])
        places = np.argpartition(-probabilities, count - 1, 1)[:, :count]
        ranks = np.argsort(-np.take_along_axis(probabilities, places, 1), 1, kind="stable")
        self.likely_ = np.take_along_axis(places, ranks, 1).astype(np.int32)
        self.likelihoods_ = np.take_along_axis(probabilities, self.likely_, 1).astype(np.float32)

    def _with_known(self, case: Case, judged: np.ndarray) -> None:
        """What was found of the rows that were judged, with the verified rows between them."""
        known = case.right != UNKNOWN
        right = (case.right == case.given).astype(float)
        filled = lambda values, known_values: _filled(values, judged, known_values)
        self.scores_, self.weights_ = filled(self.scores_, right), filled(self.weights_, right)
        self.confidence_ = filled(self.confidence_, np.ones(len(right)))
        self.flagged_ = filled(self.flagged_, known & (right == 0))
        self.suggested_codes_ = filled(self.suggested_codes_, np.where(known, case.right, 0))
        self.likely_ = filled(self.likely_, np.repeat(case.right[:, None], self.likely_.shape[1], 1))
        self.likelihoods_ = filled(self.likelihoods_, np.eye(1, self.likely_.shape[1]).repeat(len(right), 0))
        self.suggested_labels_ = self.classes_[self.suggested_codes_]

    def _learner(self, rows: Rows, classes: int) -> tuple[Any, str]:
        """What is taught by kept rows, and its name; None where only closed forms judge."""
        if self.effort == "fast" or not rows.features.shape[1]:
            return None, CLOSED_FORMS
        if is_classifier(self.model):
            return TaughtClassifier(self.model, rows.features, classes), type(self.model).__name__
        model = self._model(rows.features, classes)
        self._check_model(model, rows.features, classes)
        hidden = () if isinstance(model, Custom) else model.hidden
        name = (
            "custom"
            if isinstance(model, Custom)
            else " ".join(["mlp", "-".join(map(str, hidden))])
            if hidden
            else "linear"
        )
        return TaughtNetwork.of(model, rows.features), name

    def _learn(self, X: np.ndarray, given: np.ndarray, X_verified: np.ndarray, verified: np.ndarray) -> LabelCleaner:
        """Learns from labels that are places in `classes_`."""
        given, verified = given.astype(np.int32), verified.astype(np.int32)
        trusted = self._check_classes(verified)
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
        self.threshold_ = 0.5 if self.threshold is None else float(self.threshold)
        self.flagged_ = self.scores_ < self.threshold_
        self.estimates_, self.helpful_, self.disagreeing_ = None, True, float("nan")
        self.suggested_codes_ = posterior.argmax(1)
        self.suggested_labels_ = self.classes_[self.suggested_codes_]
        self.confidence_ = posterior.max(1)
        self._keep_likeliest(posterior)
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
        self.trials_ = choice.trials
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
        opinion = second_opinion(material, posterior, np.asarray(self.noise_), rounds, cuts, begin)
        self.noise_, self.params_, self.temperature_ = opinion.table, opinion.params, opinion.temperature
        return opinion.posterior

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, by the model that was learned on the way.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows as those that the cleaner learned from.

        Returns
        -------
        array of shape (rows, classes)
            In the order of `classes_`.
        """
        check_is_fitted(self, "scores_")
        if not self.with_features_:
            raise NotFittedError("this LabelCleaner was fitted on pred_probs alone and cannot predict; give X to fit")
        features = self._features(X, reset=False)
        if hasattr(self, "says_"):
            return np.asarray(np.exp(self.says_(features)), float)
        logs = all_log_probabilities(self.model_, self.params_, features)
        return np.exp(tempered(logs, self.temperature_))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of every row.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows as those that the cleaner learned from.

        Returns
        -------
        array of shape (rows,)
        """
        probabilities = self.predict_proba(X)  # which says so where nothing was learned yet
        return self.classes_[probabilities.argmax(1)]

    def _features(self, X: Any, reset: bool) -> np.ndarray:
        own = isinstance(self.model, Custom)
        dtype = None if getattr(X, "dtype", None) == np.uint8 else np.float32
        return validate_data(self, X, reset=reset, dtype=dtype, allow_nd=own, ensure_2d=not own)

    def _rows(self, X: Any, y: Any, name: str = "X", labels: str = "y") -> tuple[np.ndarray, np.ndarray]:
        with arguments.named(name):
            features = self._features(X, reset=name == "X")
        y = arguments.labels_of(y, labels)
        if len(y) != len(features):
            raise ValueError(f"{labels} must have one label for each row of {name}, got {len(y)} for {len(features)}")
        return features, y

    def _check_classes(self, verified: np.ndarray) -> np.ndarray:
        """Which classes have no verified row."""
        names = self.classes_
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
            ("model", "auto" if isinstance(self.model, Custom) or is_classifier(self.model) else self.model, MODELS),
            ("effort", self.effort, tuple(judging.LEARNERS)),
        ):
            if value not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(str(one) for one in known)}"
                    + (", a wior.cleaning.Custom or a classifier of scikit-learn" if name == "model" else "")
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
        number = isinstance(self.threshold, (int, float, np.floating))
        if self.threshold is not None and not (number and 0 < self.threshold < 1):
            raise ValueError(f"threshold must lie between 0 and 1, or be None, got {self.threshold!r}")
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


def _calibrated(posterior: np.ndarray, case: Case, scores: np.ndarray) -> np.ndarray:
    """(rows, classes) The probability of every class: of the given label its score, of the others what is left."""
    rows = np.arange(len(scores))
    found = posterior.copy()
    found[rows, case.given] = 0
    found *= ((1 - scores) / np.maximum(found.sum(1), 1e-30))[:, None].astype(np.float32)
    found[rows, case.given] = scores
    known = np.flatnonzero(case.right != UNKNOWN)
    found[known] = 0
    found[known, case.right[known]] = 1
    return found


def _filled(values: np.ndarray, places: np.ndarray, others: np.ndarray) -> np.ndarray:
    """`values` at some places among others."""
    found = np.array(others, values.dtype)
    found[places] = values
    return found


def _are_widths(hidden: Any) -> bool:
    return isinstance(hidden, (tuple, list)) and all(isinstance(w, (int, np.integer)) and w > 0 for w in hidden)


def _listed(names: Any) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:5])
    return f"class {shown}" if len(names) == 1 else f"classes {shown}" + (" and others" if len(names) > 5 else "")


def _told(begin: Any, what: str) -> None:
    begin(what, 1)(0, {})
