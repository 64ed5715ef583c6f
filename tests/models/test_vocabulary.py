"""A cut vocabulary: the same tokens for the texts it was cut for, and logits that are rows of the whole model's."""

import json
import random
import shutil

import pytest
import tiny_gemma
import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertModel

from repro.data import Document, Tokeniser, train_bpe
from repro.errors import ReproError
from repro.models import pretrained, save_model, vocabulary
from repro.models.vocabulary import cut, cut_tokenizer, kept_tokens

HARD = ["", " ", "  The cat", "cat\n", "a\n\nb\n\n\n c", "日本 café\r\n", "<b>bold</b> <bos>", "the\tcat  sat"]


def strings(backend, text):
    return backend.encode(text, add_special_tokens=False).tokens


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a tiny Gemma, its model, and its tokeniser."""
    folder = tmp_path_factory.mktemp("whole") / "tiny-gemma"
    model, backend = tiny_gemma.folder(folder)
    return folder, model, Tokeniser("tiny-gemma", backend)


def cut_backend(backend, texts):
    told = json.loads(backend.to_str())
    kept = kept_tokens(told, Tokeniser("whole", backend).used(texts))
    return Tokenizer.from_str(json.dumps(cut_tokenizer(told, kept))), kept


def test_the_cut_model_reads_the_same_tokens_and_predicts_rows_of_the_whole_models_logits(whole, tmp_path):
    folder, model, coder = whole
    texts = [tiny_gemma.TEXTS[0], *HARD]
    made, cut_coder = pretrained.load(cut(folder, tmp_path / "cut", texts))
    kept = json.loads((tmp_path / "cut" / "vocabulary.json").read_text())["ids"]
    assert kept == sorted(kept) and 256 < len(kept) < coder.vocab_size
    assert (cut_coder.vocab_size, made.config.vocab_size, cut_coder.name) == (len(kept), len(kept), "cut")
    for text in texts:
        ids, old = cut_coder.encode(text), coder.encode(text)
        assert [kept[k] for k in ids] == old.tolist()
        assert strings(cut_coder.backend, text) == strings(coder.backend, text)
        assert cut_coder.decode(ids) == text and cut_coder.n_bytes(ids) == len(text.encode())
    ids = torch.tensor([[cut_coder.bos, *cut_coder.encode(texts[0])]])
    with torch.no_grad():
        want = model(torch.tensor(kept)[ids]).logits[..., kept]
        torch.testing.assert_close(made(ids).logits, want, rtol=0, atol=1e-5)
    assert made.get_output_embeddings().weight is made.get_input_embeddings().weight
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut"]


def test_special_tokens_keep_their_meaning(whole, tmp_path):
    folder, model, coder = whole
    made, cut_coder = pretrained.load(cut(folder, tmp_path / "cut", ["the"]))
    for name, key in (("<pad>", "pad_token_id"), ("<eos>", "eos_token_id"), ("<bos>", "bos_token_id")):
        assert getattr(made.config, key) == cut_coder.backend.token_to_id(name)
    assert cut_coder.bos == made.config.bos_token_id
    assert cut_coder.backend.encode("the").ids[0] == cut_coder.bos  # its post-processor puts it there
    assert cut_coder.backend.token_to_id("<b>") is None
    opened = shutil.copytree(folder, tmp_path / "opened")
    config = json.loads((opened / "config.json").read_text())
    (opened / "config.json").write_text(json.dumps(config | {"opening_token": coder.bos}))
    assert pretrained.load(cut(opened, tmp_path / "again", ["the"]))[0].config.opening_token == cut_coder.bos


def test_tokens_on_the_way_are_kept_and_merges_without_a_result_are_not(whole):
    _, _, coder = whole
    backend, kept = cut_backend(coder.backend, ["there"])
    told = json.loads(backend.to_str())["model"]
    names = told["vocab"]
    assert strings(backend, "there") == strings(coder.backend, "there")
    assert {"t", "h", "e", "r"} <= names.keys()
    assert all({first, second, first + second} <= names.keys() for first, second in told["merges"])
    assert list(names.values()) == list(range(len(kept)))


@pytest.mark.parametrize("seed", range(20))
def test_texts_drawn_at_random_have_the_same_tokens(whole, seed):
    draw = random.Random(seed)
    words = " ".join(tiny_gemma.TEXTS).split(" ")
    texts = ["".join(draw.choice([*words, " ", "\n", "é", "日", draw.choice("abct ")]) for _ in range(30))
             for _ in range(3)]
    for backend in (whole[2].backend, train_bpe(tiny_gemma.TEXTS, 330).backend):
        made, kept = cut_backend(backend, texts)
        assert len(kept) <= backend.get_vocab_size()
        assert all(strings(made, text) == strings(backend, text) for text in texts)


def test_gpt2_is_cut_too(tiny_gpt2, tmp_path):
    coder = train_bpe(tiny_gemma.TEXTS, 330)
    model = tiny_gpt2(vocab_size=coder.vocab_size)
    save_model(model, tmp_path / "gpt2")
    coder.save(tmp_path / "gpt2" / "tokenizer.json")
    made, cut_coder = pretrained.load(cut(tmp_path / "gpt2", tmp_path / "cut", ["the cat"]))
    kept = json.loads((tmp_path / "cut" / "vocabulary.json").read_text())["ids"]
    assert 257 < len(kept) < coder.vocab_size
    ids = torch.tensor([[cut_coder.bos, *cut_coder.encode("the cat")]])
    with torch.no_grad():
        want = model(torch.tensor(kept)[ids]).logits[..., kept]
        torch.testing.assert_close(made(ids).logits, want, rtol=0, atol=1e-5)  # products of another size may round so
    assert cut_coder.decode(cut_coder.encode("日本 dogs")) == "日本 dogs"


def test_a_text_with_tokens_that_were_cut_away_is_encoded_in_smaller_pieces(whole, tmp_path):
    folder, _, coder = whole
    cut_coder = Tokeniser.read(cut(folder, tmp_path / "cut", ["the cat"]) / "tokenizer.json")
    text = "the worst times\n"
    assert cut_coder.decode(cut_coder.encode(text)) == text and len(cut_coder.encode(text)) > len(coder.encode(text))


def test_what_cannot_be_cut_is_refused_and_nothing_is_left(whole, tmp_path, tiny_gpt2, monkeypatch):
    folder, _, coder = whole
    bert = BertModel(BertConfig(vocab_size=coder.vocab_size, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                                intermediate_size=8))
    bert.save_pretrained(tmp_path / "bert")
    coder.save(tmp_path / "bert" / "tokenizer.json")
    save_model(tiny_gpt2(vocab_size=coder.vocab_size), tmp_path / "words")
    words = Tokenizer(models.WordLevel({"the": 0, "<unk>": 1}, unk_token="<unk>"))
    words.save(str(tmp_path / "words" / "tokenizer.json"))
    for source, texts, told in [
            (folder, "one text", "texts is one string; give a list"),
            (folder, ["a▁b"], "cannot encode this text: '▁' at position 1 is its sign for a blank; replace it"),
            (folder, ["a\ud800"], "at position 1 is half a character"),
            (tmp_path / "bert", ["a"], "BertModel has no output layer; only a causal language model"),
            (tmp_path / "words", ["the"], "of type WordLevel; only byte-pair encoding"),
            ("no-such", ["a"], "unknown published model 'no-such'")]:
        with pytest.raises(ReproError, match=told):
            cut(source, tmp_path / "cut", texts)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pretrained, "write_manifest", full)
    with pytest.raises(ReproError, match="cannot write .*No space left on device"):
        cut(folder, tmp_path / "cut", ["a"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "words"]


def test_a_config_that_names_a_token_beyond_the_tokenizer_is_refused(whole, tmp_path, tiny_gpt2):
    model = tiny_gpt2(vocab_size=600, eos_token_id=599)
    save_model(model, tmp_path / "gpt2")
    whole[2].save(tmp_path / "gpt2" / "tokenizer.json")
    with pytest.raises(ReproError, match="names token 599, but its tokenizer has ids 0 to"):
        cut(tmp_path / "gpt2", tmp_path / "cut", ["a"])


def test_the_studys_texts_are_the_first_books_by_name_and_every_other_document(monkeypatch):
    class Source:
        def __init__(self, name):
            self.name = name

        def stream(self, split):
            return (Document(f"{k:03}", f"{self.name} {split} {k}") for k in reversed(range(70)))

    monkeypatch.setattr(vocabulary, "corpus", Source)
    texts = list(vocabulary.study_texts())
    assert len(texts) == 60 + 5 * 70
    assert texts[:2] == ["pg19-subset train 0", "pg19-subset train 1"]
