"""Plain training, and labels judged again by plain models of what was kept."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from wior.cleaning import choosing, plain, second_opinion
from wior.cleaning.designs import Material
from wior.cleaning.models import Custom, tempered
from wior.tasks.data_cleaning import corrupt

CLASSES, ROWS, VERIFIED = 3, 90, 12


def logits(params, features):
    return features @ params["slope"] + params["shift"]


MODEL = Custom(logits, {"slope": np.zeros((2, CLASSES), np.float32), "shift": np.zeros(CLASSES, np.float32)})
CENTERS = np.array([[0, 3], [3, -2], [-3, -2]], np.float32)


def classes_in_the_plane(rows, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows).astype(np.int32)
    return (CENTERS[labels] + rng.normal(size=(rows, 2))).astype(np.float32), labels


def material(noise="pairs", rate=0.3, trusted=(False,) * CLASSES):
    features, true = classes_in_the_plane(ROWS, 0)
    made = corrupt(true, rate, CLASSES, noise, 1)
    verified = tuple(jnp.asarray(part) for part in classes_in_the_plane(VERIFIED, 2))
    places = jnp.arange(ROWS, dtype=jnp.int32)
    found = Material(
        MODEL, jnp.asarray(features), jnp.asarray(made.labels), places, verified, np.array(trusted), 0.01, 0
    )
    return found, made, true


def ask(own, posterior, table, rounds=1, begin=lambda name, steps: lambda step, latest: None):
    labels = np.asarray(own.verified[1])
    cuts = second_opinion.Cuts(
        lambda number: choosing.parts_of_rows(ROWS, 3, number),
        lambda number: choosing.fold_places(labels, 3, number),
    )
    return second_opinion.second_opinion(own, posterior, table, rounds, cuts, begin)


def trusting(given, sure=0.8):
    """Every label is probably right."""
    return np.where(np.eye(CLASSES, dtype=bool)[given], sure, (1 - sure) / (CLASSES - 1)).astype(np.float32)


def test_places_are_drawn_in_whole_passes():
    places = np.array([3, 5, 8, 13, 21])
    drawn = np.asarray(plain.drawn(places, steps=7, batch=4, seed=0))
    assert drawn.shape == (7, 4)
    passes = drawn.reshape(-1)[:25].reshape(5, 5)
    np.testing.assert_array_equal(np.sort(passes, 1), np.tile(places, (5, 1)))
    assert len({tuple(one) for one in passes}) > 1


def test_training_is_adam_on_two_tables_as_on_one():
    own, *_ = material()
    features, more = np.asarray(own.features), np.asarray(own.verified[0])
    labels = np.concatenate([own.given, own.verified[1]])
    batches, l2, lr = plain.drawn(np.arange(ROWS + VERIFIED), 9, 8, 0), 0.1, 0.05
    params = MODEL.init(0)
    found = plain.trained(MODEL, params, (own.features, own.verified[0]), jnp.asarray(labels), batches, l2, lr)
    joined, rule = np.concatenate([features, more]), optax.adam(lr)
    state = rule.init(params)
    for places in np.asarray(batches):

        def loss(params, places=places):
            logs = jax.nn.log_softmax(logits(params, joined[places]))
            return -jnp.mean(logs[np.arange(8), labels[places]]) + l2 / 2 * jnp.sum(params["slope"] ** 2)

        updates, state = rule.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6), found, params)
    alone = plain.trained(MODEL, MODEL.init(0), (jnp.asarray(joined),), jnp.asarray(labels), batches, l2, lr)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), found, alone)


def test_a_temperature_divides_the_logits():
    logs = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]))
    np.testing.assert_allclose(tempered(logs, 1.0), logs, atol=1e-15)
    np.testing.assert_allclose(np.exp(tempered(logs, 2.0)).sum(1), 1)
    np.testing.assert_allclose(np.exp(tempered(logs, 0.5))[0], np.array([49, 4, 1]) / 54)
    assert np.isfinite(tempered(np.array([[0.0, -1e30]]), 0.25)[0, 0])


def test_wrong_labels_are_found_that_were_taken_for_right():
    own, made, true = material("uniform", 0.2)
    given = made.labels
    opinion = ask(own, trusting(given), np.eye(CLASSES) * 0.7 + 0.1, rounds=2)
    np.testing.assert_allclose(opinion.posterior.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(opinion.table.sum(1), 1, rtol=1e-5)
    flagged = opinion.posterior[np.arange(ROWS), given] < 0.5
    assert np.mean(flagged == made.wrong) > 0.95
    assert np.mean(opinion.posterior.argmax(1) == true) > 0.95
    assert np.mean(np.asarray(logits(opinion.params, own.features)).argmax(1) == true) > 0.95
    np.testing.assert_allclose(np.diag(opinion.table), 0.8, atol=0.12)


def test_nothing_is_judged_by_a_model_that_has_seen_it(monkeypatch):
    """Nor a verified row by which the temperature is found; and only rows that were kept teach."""
    own, made, _ = material()
    posterior = trusting(made.labels)
    dropped = np.arange(0, ROWS, 7)
    posterior[dropped] = 1 - posterior[dropped]
    taught, judged = [], []
    learned, says = second_opinion._learned, second_opinion.all_log_probabilities

    def watch_learning(material, rows, verified, seed, report):
        taught.append((rows, verified))
        return learned(material, rows, verified, seed, report)

    def watch_judging(model, params, features):
        judged.append(np.asarray(features))
        return says(model, params, features)

    monkeypatch.setattr(second_opinion, "_learned", watch_learning)
    monkeypatch.setattr(second_opinion, "all_log_probabilities", watch_judging)
    ask(own, posterior, np.eye(CLASSES) * 0.7 + 0.1)
    members = second_opinion.members_of(ROWS)
    assert len(taught) == 3 * members + 1
    seen_rows, seen_verified = [], []
    for (rows, verified), of_part, of_fold in zip(taught, judged[::2], judged[1::2], strict=False):
        assert not set(rows) & set(dropped)
        lessons = {tuple(row) for row in np.asarray(own.features)[rows]}
        assert not lessons & {tuple(row) for row in of_part}
        assert not {tuple(row) for row in np.asarray(own.verified[0])[verified]} & {tuple(row) for row in of_fold}
        seen_rows += [tuple(row) for row in of_part]
        seen_verified += [tuple(row) for row in of_fold]
    assert len(set(seen_rows)) == ROWS
    assert len(set(seen_verified)) == VERIFIED


def test_a_trusted_class_stays_as_it_is():
    own, made, _ = material("uniform", 0.3, trusted=(False, False, True))
    given = made.labels
    opinion = ask(own, trusting(given), np.eye(CLASSES) * 0.7 + 0.1)
    assert np.all(opinion.posterior[given == 2, 2] > 0.999)
    assert np.all(opinion.posterior[given != 2].argmax(1) != 2)


def test_progress_is_told_of_every_model():
    own, made, _ = material()
    names = []

    def begin(name, steps):
        return lambda step, latest: names.append((name, step / steps))

    ask(own, trusting(made.labels), np.eye(CLASSES) * 0.7 + 0.1, begin=begin)
    assert len(names) == 3 * second_opinion.members_of(ROWS) + 1
    assert all(share == 1 for _, share in names)
    assert names[0][0] == "second opinion, round 1 of 1, part 1"
