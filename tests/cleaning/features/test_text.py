"""Texts as vectors."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from wior.cleaning.features import text as module
from wior.cleaning.features.text import TextFeatures

HELLO = [
    "Guten Morgen, wie geht es Ihnen", "Good morning, how are you", "Bonjour, comment allez-vous", "Buenos días, ¿cómo está?",
    "Buongiorno, come sta", "Bom dia, como vai", "Goedemorgen, hoe gaat het", "God morgon, hur mår du", "God morgen, hvordan går det",
    "Hyvää huomenta, mitä kuuluu", "Tere hommikust, kuidas läheb", "Labrīt, kā iet", "Labas rytas, kaip sekasi", "Dzień dobry, jak się masz",
    "Dobré ráno, jak se máte", "Dobré ráno, ako sa máš", "Jó reggelt, hogy van", "Bună dimineața, ce mai faci", "Добро утро, как си",
    "Доброе утро, как дела", "Доброго ранку, як справи", "Добро јутро, како си", "Καλημέρα, τι κάνεις", "Günaydın, nasılsın",
    "صباح الخير كيف حالك", "صبح بخیر حال شما چطور است", "בוקר טוב מה שלומך", "शुभ प्रभात आप कैसे हैं", "সুপ্রভাত কেমন আছেন",
    "காலை வணக்கம் எப்படி இருக்கிறீர்கள்", "శుభోదయం మీరు ఎలా ఉన్నారు", "ಶುಭೋದಯ ಹೇಗಿದ್ದೀರಾ", "സുപ്രഭാതം സുഖമാണോ", "สวัสดีตอนเช้าคุณสบายดีไหม",
    "ສະບາຍດີຕອນເຊົ້າ", "早上好，你好吗", "おはようございます、お元気ですか", "좋은 아침입니다 어떻게 지내세요", "დილა მშვიდობისა როგორ ხარ", "Բարի լույս ինչպես ես",
]  # fmt: skip


def test_forty_languages():
    """A text is like one that begins in the same way, and unlike all others."""
    assert len(set(HELLO)) == 40
    features = TextFeatures(60).fit(HELLO * 2)
    vectors = features.transform(HELLO)
    halves = features.transform([text[: 2 * len(text) // 3] for text in HELLO])
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    assert (halves @ vectors.T).argmax(1).tolist() == list(range(40))


def test_groups_of_letters_are_counted_as_scikit_learn_counts_them():
    """Each different word is taken apart once; the naive twin takes every text apart."""
    texts = ["One two  two,\nthree", "two ÜBER one", "", "  ", "日本語のテキスト two"] * 2
    own = module._Letters((2, 4))
    found = own.fit(texts)
    counting = CountVectorizer(analyzer="char_wb", ngram_range=(2, 4), dtype=np.float32)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counting.fit_transform(texts))
    assert own.counting.get_feature_names_out().tolist() == counting.get_feature_names_out().tolist()
    assert np.abs(found - expected).max() < 1e-6
    assert np.abs(own.transform(texts[::-1]) - expected[::-1]).max() < 1e-6


@pytest.mark.parametrize("texts", [[], [""], ["", " \n"], ["", "", ""]])
def test_nothing_to_learn_from(texts):
    features = TextFeatures().fit(texts)
    assert features.width == 0
    assert features.transform([*texts, "word"]).shape == (len(texts) + 1, 0)


def test_a_constant_text_and_texts_of_unknown_letters():
    features = TextFeatures().fit(["same words"] * 5)
    assert features.width == 1
    assert np.abs(features.transform(["same words", "", "zzz"])[:, 0]).tolist() == [pytest.approx(1), 0, 0]


def test_a_sample_of_many_texts_is_learned_from_and_all_are_transformed_in_blocks(monkeypatch):
    monkeypatch.setattr(module, "LEARNED_FROM", 100)
    monkeypatch.setattr(module, "AT_ONCE", 32)
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "round", "square"])
    texts = [" ".join(rng.choice(words, 4)) for _ in range(250)]
    features = TextFeatures(5, seed=3).fit(texts)
    vectors = features.transform(iter(texts))
    assert vectors.shape == (250, 5)
    monkeypatch.setattr(module, "AT_ONCE", 8192)
    assert np.array_equal(vectors, features.transform(texts))
    assert np.array_equal(vectors, TextFeatures(5, seed=3).fit(texts).transform(texts))


def test_the_largest_vocabulary_holds_the_commonest(monkeypatch):
    monkeypatch.setattr(module, "LETTERS", 2)
    own = module._Letters((2, 2))
    own.fit(["ab"] * 3 + ["cd"] * 2)
    assert own.counting.get_feature_names_out().tolist() == [" a", "ab"]


def test_long_texts_count_by_their_beginning(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 9)
    features = TextFeatures(3).fit(["some text", "other one", "third it"])
    assert np.array_equal(features.transform(["some text and more"]), features.transform(["some text"]))
