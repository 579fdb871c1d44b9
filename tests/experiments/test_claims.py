"""Verdicts on claims."""

import numpy as np
import pytest

from wior.experiments.claims import Claim, Ends, ahead, as_json, level, markdown, verdict


def ends(*values, largest=False):
    return Ends(np.array(values), largest)


def test_ahead_is_more_than_two_standard_errors_of_the_difference():
    one = ends(0.0, 2.0)  # mean 1, standard error 1
    assert one.error == pytest.approx(1.0)
    apart = 2 * 2**0.5  # two standard errors of the difference of two such
    for gap, expected in ((0.99 * apart, False), (1.01 * apart, True)):
        other = ends(0.0 + gap, 2.0 + gap)
        assert ahead(one, other) is expected
        assert not ahead(other, one)
        best = ends(0.0 + gap, 2.0 + gap, largest=True)
        assert ahead(best, ends(0.0, 2.0, largest=True)) is expected


def test_level_is_within_two_standard_errors_or_a_share_of_the_smaller():
    assert level(ends(1.0), ends(1.049))
    assert not level(ends(1.0), ends(1.06))
    assert level(ends(1.0), ends(1.06), share=0.1)
    assert level(ends(0.4), ends(0.409), share=0.0, within=0.01)
    assert not level(ends(0.4), ends(0.411), share=0.0, within=0.01)
    assert level(ends(-1.0), ends(-1.049), share=0.05)
    assert level(ends(0.0, 2.0), ends(2.0, 4.0))
    assert not level(ends(0.0, 2.0), ends(4.0, 6.0))


def test_of_one_seed_any_lead_counts():
    assert ends(1.0).error == 0
    assert ahead(ends(1.0), ends(1.0 + 1e-9))
    assert not ahead(ends(1.0), ends(1.0))
    assert str(ends(1.0)) == "1 ± 0"
    assert str(ends(1.0, 2.0, 3.0)) == "2 ± 1"


@pytest.mark.parametrize("bad", [(np.nan, 1.0), (np.inf, 1.0), (np.inf, np.inf), (np.inf, -np.inf), (np.nan,)])
@pytest.mark.parametrize("largest", [False, True])
def test_a_diverged_run_is_behind_and_level_with_nothing(bad, largest):
    diverged, fine = ends(*bad, largest=largest), ends(1.0, 2.0, largest=largest)
    assert ahead(fine, diverged)
    assert not ahead(diverged, fine)
    assert not ahead(diverged, diverged)
    assert not level(diverged, fine)
    assert not level(fine, diverged)
    assert not level(diverged, diverged)
    assert "±" in str(diverged)


def test_a_verdict_is_about_all_parts():
    assert verdict([True, True]) == "holds"
    assert verdict([True, False]) == "partly"
    assert verdict([False, False]) == "does not hold"


def test_claims_as_json_and_markdown():
    claims = [Claim("One.", "holds", "1 > 0."), Claim("Two.", "partly", "2 = 2.")]
    assert as_json(claims)[1] == {"text": "Two.", "verdict": "partly", "evidence": "2 = 2."}
    assert markdown(claims) == "- **holds**: One.\n  1 > 0.\n- **partly**: Two.\n  2 = 2."
