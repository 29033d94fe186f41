from pathlib import Path

import pytest

from stigmergy.errors import Invalid
from stigmergy.settings import Settings, described, load


def test_an_argument_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "stigmergy.toml"
    file.write_text('store = "file.db"\nport = 1\nhost = "10.0.0.1"\n')
    environment = {"STIGMERGY_STORE": "environment.db", "STIGMERGY_PORT": "2"}
    settings = load({"store": "argument.db", "port": None}, environment=environment, file=file)
    assert (settings.store, settings.port, settings.host) == ("argument.db", 2, "10.0.0.1")


def test_without_anything_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environment={}) == Settings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("stor = 'x'", "stor"),
        ("port = 70000", "65535"),
        ("port = 'x'", "int"),
        ("port = ", "stigmergy.toml"),
        ("keep_days = -1", "0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, where: str) -> None:
    file = tmp_path / "stigmergy.toml"
    file.write_text(text)
    with pytest.raises(Invalid, match=where):
        load(environment={}, file=file)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no such settings file"):
        load(environment={}, file=tmp_path / "none.toml")


def test_every_setting_says_what_it_is_for() -> None:
    assert all(each.about.endswith((".", "!")) and each.kind for each in described())
