"""Models to the hub, which a stand-in takes the place of."""

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

from polyrank.errors import StorageError, UsageError
from polyrank.models.checkpoint import load_model
from tiny_encoders import TEXTS, VARIANTS, load_variant


class Hub:
    """Keeps the last folder that was uploaded; raises `error`, if there is one, at `step`."""

    def __init__(self, folder):
        self.folder = folder
        self.calls = []
        self.error, self.step = None, "create_repo"

    def __call__(self, token=None):
        self.calls.append(("token", token))
        return self

    def call(self, name, *details):
        self.calls.append((name, *details))
        if self.error is not None and name == self.step:
            raise self.error

    def create_repo(self, repo_id, *, private, exist_ok):
        self.call("create_repo", repo_id, private, exist_ok)
        return f"https://hub/{repo_id}"

    def create_branch(self, repo_id, *, branch, exist_ok):
        self.call("create_branch", repo_id, branch, exist_ok)

    def upload_folder(self, *, repo_id, folder_path, revision, commit_message):
        self.call("upload_folder", repo_id, revision, commit_message)
        folder_path.rename(self.folder)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    made = Hub(tmp_path / "uploaded")
    monkeypatch.setattr(huggingface_hub, "HfApi", made)
    return made


def refusal(status):
    """What huggingface_hub raises where the hub answers with a status."""

    class Answer:
        status_code, headers, request = status, {}, None

    return HfHubHTTPError("refused", response=Answer())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_uploaded_folder_is_the_model_with_a_card(variant, bert, hub):
    model = load_variant(variant, bert)
    assert model.push_to_hub("me/mine", private=True, token="secret") == "https://hub/me/mine"
    assert [call[0] for call in hub.calls] == ["token", "create_repo", "upload_folder"]
    assert hub.calls[0] == ("token", "secret")
    assert hub.calls[1] == ("create_repo", "me/mine", True, True)
    again = load_model(hub.folder, device="cpu", dtype="float32")
    assert torch.equal(again.score(TEXTS, TEXTS), model.score(TEXTS, TEXTS))
    card = huggingface_hub.ModelCard.load(hub.folder / "README.md")
    assert card.data.library_name == "polyrank"
    assert f'{type(model).__name__}.from_pretrained("me/mine")' in card.text
    assert model.path == bert.absolute()  # which the upload leaves alone


def test_the_card_of_a_trained_model_goes_with_it(bert, hub, tmp_path):
    model = load_variant("bi", bert)
    card = 'Trained.\n\nmodel = BiEncoder.from_pretrained("path/to/this/folder")\n'
    model.save_pretrained(tmp_path / "saved", extra={"README.md": card, "training.json": "{}"})
    model.push_to_hub("me/mine", revision="second", commit_message="Better")
    assert hub.calls[2:] == [
        ("create_branch", "me/mine", "second", True),
        ("upload_folder", "me/mine", "second", "Better"),
    ]
    assert (hub.folder / "README.md").read_text() == card.replace("path/to/this/folder", "me/mine")
    assert (hub.folder / "training.json").read_text() == "{}"


def test_the_readme_of_another_model_does_not_go_with_it(own_bert, hub):
    (own_bert / "README.md").write_text("The encoder of somebody else.")
    load_variant("bi", own_bert).push_to_hub("me/mine")
    assert "somebody else" not in (hub.folder / "README.md").read_text()


@pytest.mark.parametrize("step", ["create_repo", "upload_folder"])
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (LocalTokenNotFoundError("x"), UsageError, "token that allows it. Log in with `hf auth"),
        (refusal(401), UsageError, "token that allows it. Log in with `hf auth login`"),
        (refusal(403), UsageError, "token that allows it"),
        (HFValidationError("x"), UsageError, "'me/mine' is not the id of a repository"),
        (refusal(500), StorageError, "'me/mine': the hub answers with 500. Check the connection"),
        (ConnectionError("x"), StorageError, "the hub cannot be reached. Check the connection"),
    ],
)
def test_what_goes_wrong_is_said_in_two_sentences(bert, hub, step, error, kind, words):
    hub.error, hub.step = error, step
    with pytest.raises(kind, match=words):
        load_variant("bi", bert).push_to_hub("me/mine")


def test_without_network_nothing_is_sent(bert):
    """The hub is switched off in all tests."""
    with pytest.raises(StorageError, match="the hub cannot be reached"):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")
