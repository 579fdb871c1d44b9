"""The examples run as they stand, are short, and show what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wior import orders

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert {"choose_an_order.py", "hyper_data_cleaning.py"} <= {path.name for path in EXAMPLES}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Runs an example once, in an empty folder and without this process's float64."""
    done = {}
    folder = tmp_path_factory.mktemp("examples")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # most of their time is compilation

    def run(name):
        path = next(path for path in EXAMPLES if path.name == name)
        if name not in done:
            done[name] = subprocess.run(
                [sys.executable, path], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
            )
        return done[name]

    return run


@pytest.mark.parametrize("name", [path.name for path in EXAMPLES])
def test_an_example_is_short_and_runs(printed, name):
    source = next(path for path in EXAMPLES if path.name == name).read_text()
    assert len(source.splitlines()) < 60
    result = printed(name)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout


def test_hyper_data_cleaning_finds_wrong_labels(printed):
    found = dict(
        re.findall(r"^(F1|AUROC|test accuracy) +([\d.]+)", printed("hyper_data_cleaning.py").stdout, re.MULTILINE)
    )
    assert set(found) == {"F1", "AUROC", "test accuracy"}
    assert all(float(value) > 0.9 for value in found.values())


def test_choose_an_order_shows_every_order(printed):
    norms = dict(re.findall(r"^([a-z-]+) +([\d.]+) ±", printed("choose_an_order.py").stdout, re.MULTILINE))
    assert set(norms) == set(orders.BY_NAME)
    independent = float(norms.pop("independent"))
    assert all(float(norm) < independent for norm in norms.values())


def numbers(printed, name, pattern):
    found = re.findall(pattern, printed(name).stdout)
    return [tuple(map(float, one)) if isinstance(one, tuple) else float(one) for one in found]


def test_a_mixture_on_a_simplex_leaves_out_the_bad_sources(printed):
    weights = re.search(r"sources: +\[(.*)\]", printed("mixture_on_a_simplex.py").stdout)[1].split()
    good, worse, noisy, wrong = map(float, weights)
    assert min(good, worse) > 0.4
    assert max(noisy, wrong) < 0.1
    errors = re.search(r"rows: ([\d.]+) -> ([\d.]+)", printed("mixture_on_a_simplex.py").stdout)
    before, after = map(float, errors.groups())
    assert after < 0.05 * before


def test_dropout_and_penalties(printed):
    before, after = numbers(printed, "dropout.py", r"([\d.]+) -> ([\d.]+)")[0]
    assert after < 0.2 * before
    assert numbers(printed, "dropout.py", r"accuracy +([\d.]+)")[0] > 0.95


def test_batch_norm_beside_weights(printed):
    ((right, wrong),) = numbers(printed, "batch_norm.py", r"weight +([\d.]+) of right labels, ([\d.]+)")
    assert right > 0.6
    assert wrong < 0.3
    assert numbers(printed, "batch_norm.py", r"accuracy +([\d.]+)")[0] > 0.93


def test_augmentation_is_learned(printed):
    before, after = numbers(printed, "learned_augmentation.py", r"shift +([\d.]+) -> ([\d.]+)")[0]
    assert before == 0.1
    assert 0.8 < after < 1.2  # the digits to recognize are shifted by 1


def test_the_task_that_matters_counts_most(printed):
    digit, parity, noise = numbers(printed, "multi_task.py", r"weight of \w+ +([\d.]+)")
    assert digit > 0.5 > max(parity, noise)


def test_a_learned_start_helps_on_new_tasks(printed):
    random, learned = numbers(printed, "maml_first_order.py", r"new tasks ([\d.]+)")
    assert learned < 0.5 * random


def test_learned_learning_rates_follow_the_scales_of_the_columns(printed):
    name = "learned_learning_rates.py"
    small, middle, large = map(float, re.search(r"rates: (.*)", printed(name).stdout)[1].split())
    assert small > 10 * middle > 50 * large
    learned, first = numbers(printed, name, r"validation loss.*: ([\d.]+)")
    assert learned < 0.01 * first


def test_robust_weights_learn_the_rare_digit(printed):
    name = "robust_weights.py"
    equal, robust = numbers(printed, name, r"right on ([\d.]+) of the rare digit, ([\d.]+) of the others")
    assert equal[0] < 0.1
    assert robust[0] > 0.4
    assert robust[1] > equal[1]  # and nothing is lost on the others
    ((rare, others),) = numbers(printed, name, r"weight ([\d.]+) of the rare digit, ([\d.]+) of the others")
    assert rare > 3 * others
    (away,) = numbers(printed, name, r"by ([\d.]+) of it")
    assert away < 0.15
