"""Counting tokens: by the model's own tokenizer where we have it, else by the stated estimate, and never for long."""

import subprocess
import sys
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stigmergy.agents.tokens import COUNTED, count_tokens, estimated

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    import bpe_openai

TEXTS = ("", "hello world", "Ünïcödé 漢字 🎉 <|endoftext|>", "def f(x):\n\treturn x ** 2\n" * 20)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("openai:gpt-5-mini", "o200k_base"),
        ("openai:gpt-4o", "o200k_base"),
        ("openai:gpt-4.1-nano", "o200k_base"),
        ("openai:o3", "o200k_base"),
        ("openrouter:openai/gpt-4o:free", "o200k_base"),
        ("gpt-10-turbo", "o200k_base"),
        ("ollama:gpt-oss:20b", "o200k_base"),
        ("openai-compatible:gpt-oss-120b@http://localhost:8000/v1", "o200k_base"),
        ("openai:ft:gpt-4o-mini:acme::x", "o200k_base"),
        ("openai:gpt-4-turbo", "cl100k_base"),
        ("azure:gpt-35-turbo", "cl100k_base"),
    ],
)
def test_a_known_model_is_counted_as_it_counts(model: str, encoding: str) -> None:
    own = bpe_openai.get_encoding(encoding)
    for text in TEXTS:
        assert count_tokens(text, model) == len(own.encode_ordinary(text))


@pytest.mark.parametrize(
    "model", ["", "anthropic:claude-sonnet-4-5", "google:gemini-3-pro", "ollama:llama3.2", "scripted:x.toml", "o"]
)
def test_any_other_model_is_estimated_at_four_bytes_a_token(model: str) -> None:
    assert count_tokens("hello world!", model) == 3
    assert count_tokens("hello world!!", model) == 4
    assert count_tokens("漢字", model) == 2
    assert count_tokens("", model) == 1


@given(st.text(st.characters(), max_size=200))
def test_every_text_has_a_count(text: str) -> None:
    assert count_tokens(text, "openai:gpt-5") >= 0
    assert estimated(text) >= 1


def test_half_a_surrogate_pair_is_counted_too() -> None:
    assert count_tokens("a\ud800b", "openai:gpt-5") > 0
    assert count_tokens("a\ud800b" * COUNTED, "openai:gpt-5") > 0
    assert count_tokens("a\ud800b") == 2


def test_a_huge_text_is_counted_from_pieces_of_it() -> None:
    text = "The quick brown fox, jumps 1234 times. " * 6000
    assert len(text) > COUNTED
    exact = len(bpe_openai.get_encoding("o200k_base").encode_ordinary(text))
    assert count_tokens(text, "openai:gpt-5") == pytest.approx(exact, rel=0.01)


@pytest.mark.serial
@pytest.mark.parametrize("text", ["a", " ", "\n", "漢", "!", "ab ", "🎉"])
def test_no_text_holds_the_loop(text: str) -> None:
    for length in (COUNTED, 20_000_000):
        whole = text * (length // len(text))
        count_tokens(whole[:10], "openai:gpt-5")
        begun = time.perf_counter()
        count_tokens(whole, "openai:gpt-5")
        assert time.perf_counter() - begun < 0.25


def test_the_vocabularies_are_not_read_twice() -> None:
    code = (
        "import sys; from stigmergy.agents.tokens import count_tokens; count_tokens('x', 'gpt-5')\n"
        "assert 'bpe_openai' not in sys.modules\n"
        "import bpe_openai; assert bpe_openai.get_encoding('o200k_base').encode('x') == [87]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
