"""The contract of scikit-learn, by scikit-learn's own checks."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from wior.cleaning import LabelCleaner


class SelfVerified(LabelCleaner):
    """Fits as every classifier does: all rows are taken for verified ones, too."""

    def fit(self, X, y):
        return super().fit(X, y, X, () if y is None else y)  # of two that are missing y is named


CHEAP = SelfVerified(hidden=(8,), epochs=30, folds=2, parts=0)
CHECKED = [(check, getattr(check, "func", check).__name__) for _, check in estimator_checks_generator(CHEAP)]
WITHOUT_A_FIT = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimator_sparse_array",
    "check_classifiers_regression_target",
    "check_supervised_y_no_nan",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_fit1d",
    "check_requires_y_none",
)


def checked(without_a_fit):
    return [
        pytest.param(check, id=f"{name} {len(CHECKED[:place])}")
        for place, (check, name) in enumerate(CHECKED)
        if (name in WITHOUT_A_FIT) == without_a_fit
    ]


def test_the_checks_of_scikit_learn_are_found():
    assert {name for _, name in CHECKED} > set(WITHOUT_A_FIT)


@pytest.mark.filterwarnings("ignore")  # they call estimators in ways that warn
@pytest.mark.parametrize("check", checked(without_a_fit=True))
def test_checks_of_scikit_learn(check):
    check(clone(CHEAP))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", checked(without_a_fit=False))
def test_all_other_checks_of_scikit_learn(check):
    check(clone(CHEAP))
