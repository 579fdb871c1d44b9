"""Columns of many different texts."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from user_tables import column, marked
from wior.cleaning.features.text import TextFeatures
from wior.cleaning.tables import survey

WORDS = ["market", "game", "team", "price", "win", "stock", "goal", "share"]


def sentences(count):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, 6)) + f" {i}" for i in range(count)]


def test_free_text_becomes_features(folder):
    texts = sentences(60)
    found, said = column(*texts, "")
    expected = TextFeatures(300).fit(texts).transform(texts)
    assert np.array_equal(np.array(found, np.float32)[:60], expected)
    assert found[60] == [0] * expected.shape[1]
    assert said == {"kind": "text", "missing": 1, "why": "text of 7 words, 60 different values"}


def test_few_sentences_are_text_and_repeated_ones_categories(folder):
    texts = sentences(8)
    assert column(*texts)[1]["kind"] == "text"
    assert column(*texts, *texts)[1] == {"kind": "category", "values": 8}


def test_scripts_without_blanks(folder):
    texts = [f"今天的天气非常好我们去公园散步{'东西南北'[i % 4]}{i}" for i in range(60)]
    assert column(*texts)[1]["kind"] == "text"
    assert column(*(f"北京{'东西南北'[i % 4]}{i}" for i in range(60)))[1]["kind"] == "name"


def test_names_have_a_feature_for_each_common_value_and_share_their_letters(folder):
    cells = ["Springfield"] * 5 + ["Oslo"] * 6 + [f"{a}{b} ville" for a in "abcdefgh" for b in "mnopqrst"] + [""]
    found, said = column(*cells)
    found = np.array(found)
    assert said == {"kind": "name", "missing": 1, "common_values": 2, "why": "66 different values"}
    assert found[:11, :2].tolist() == [[0, 1]] * 5 + [[1, 0]] * 6  # Oslo, Springfield
    assert not found[11:, :2].any()
    assert found[:, -1].tolist() == [0] * 75 + [1]
    assert not found[75, :-1].any()
    letters = found[11:75, 2:-1]
    likeness = letters @ letters.T
    first = np.arange(64) // 8
    same = first[:, None] == first
    assert likeness[same].mean() > likeness[~same].mean() + 0.1


def test_letters_tell_what_a_rare_code_belongs_to(folder):
    """As the last letters of a plane's number tell the airline: no number comes twice."""
    rng = np.random.default_rng(0)
    owner = rng.integers(0, 3, 120)
    cells = [f"{'NDF'[i % 3]}{rng.integers(100, 999)}{i:03}{('UAL', 'DLH', 'SWA')[who]}" for i, who in enumerate(owner)]
    features = np.array(column(*(cell + " x" for cell in cells))[0])
    model = LogisticRegression().fit(features[:80], owner[:80])
    assert model.score(features[80:], owner[80:]) > 0.95


def test_columns_of_ids_are_ignored_and_said(folder):
    why = "every value is another one, as ids are; --id names such a column"
    for cells in ([f"r{i:04}" for i in range(60)], [f"{i:08x}-0000-4000-8000-00000000{i:04x}" for i in range(60)]):
        assert column(*cells)[1] == {"kind": "ignored", "why": why}
    job = marked("it,n,label,ok\n" + "".join(f"r{i:04},{i},{'xy'[i % 2]},\n" for i in range(60)))
    assert job.notes[0] == f"column 'it' is ignored: {why}"
    assert column(*(f"lib{i}-{'abc'[i % 3]}tools-python" for i in range(60)))[1]["kind"] == "name"


@pytest.mark.parametrize("rows", [30, 250])
def test_many_rows_are_sampled(folder, monkeypatch, rows):
    monkeypatch.setattr(survey, "LEARNED_FROM", 100)
    texts = [f"{WORDS[i % 8]} {WORDS[i // 8 % 8]} {WORDS[i // 64 % 8]} text {i % 7}" for i in range(rows)]
    found, said = column(*texts)
    assert said["kind"] == "text"
    assert ("in a sample" in said["why"]) == (rows > 100)
    assert np.abs(np.linalg.norm(np.array(found)[:50], axis=1) - 1).max() < 1e-5


def test_the_full_text_reaches_the_page(folder):
    long = "word " * 2000
    job = marked(f"a,label,ok\n{long},x,1\nshort,y,\n")
    assert job.records(np.array([0]))[0][0] == long
