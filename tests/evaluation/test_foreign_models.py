"""Models of other families: scored, trained and continued as transformers does it, or refused in one line."""

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import continuation_nll, perplexity
from repro.evaluation.dependence import dependence
from repro.evaluation.generation import continued
from repro.models import Longformer, roberta_mini
from repro.recurrence import MaskedOut
from repro.training import WindowedLM
from repro.windows import context_of

V = 29
LLAMA = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
         "max_position_embeddings": 24}
BLOOM = {"vocab_size": V, "hidden_size": 16, "n_layer": 1, "n_head": 2}
GPT2 = {"vocab_size": V, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24, "bos_token_id": 0,
        "eos_token_id": 0, "pad_token_id": 0}
CAUSAL = {  # family -> (its config, its context)
    "Llama": (LLAMA, 24), "Bloom": (BLOOM, None),
    "Mistral": (LLAMA | {"num_key_value_heads": 1, "sliding_window": 3}, 24),
    "Gemma2": (LLAMA | {"num_key_value_heads": 1, "head_dim": 8, "final_logit_softcapping": 1.0,
                        "sliding_window": 3}, 24),
    "GPTNeoX": (LLAMA, 24), "Roberta": (LLAMA | {"is_decoder": True}, 22)}
REFUSED = {
    "GPT2ForSequenceClassification": (GPT2, r"returns \(6, 2\) for token ids"),
    "GPT2ForTokenClassification": (GPT2, "returns 2 scores per token, but its vocabulary has 29"),
    "GPT2Model": (GPT2, "without logits"), "LlamaForSequenceClassification": (LLAMA | {"pad_token_id": 0}, r"\(6, 2\)"),
    "BertForMaskedLM": (LLAMA, "not causal"), "RobertaForCausalLM": (LLAMA, "not causal"),
    "T5ForConditionalGeneration": ({"vocab_size": V, "d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16,
                                    "d_kv": 8}, "encoder-decoder")}


def made(name, config):
    import transformers

    torch.manual_seed(0)
    family = name.partition("For")[0].removesuffix("Model")
    model = getattr(transformers, name)(getattr(transformers, f"{family}Config")(**config)).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data.mul_(8)  # so that context tells
    return model


@pytest.fixture(params=CAUSAL)
def causal(request):
    config, context = CAUSAL[request.param]
    return made(f"{request.param}ForCausalLM", config), context


@pytest.fixture(params=REFUSED)
def refused(request):
    config, words = REFUSED[request.param]
    return made(request.param, config), words


IDS = torch.from_numpy(np.random.default_rng(0).integers(3, V, size=(2, 30)))


@torch.no_grad()
def nll_of(model, ids):
    """Nats of every token but the first, each from a reading of its own."""
    logits = [model(input_ids=ids[None, :k]).logits[0, -1].double().log_softmax(0) for k in range(1, len(ids))]
    return np.array([-float(told[token]) for told, token in zip(logits, ids[1:], strict=True)])


def test_one_helper_says_how_much_a_model_reads(causal):
    model, context = causal
    assert context_of(model) == context
    if context is not None and "Roberta" in type(model).__name__:
        with pytest.raises(RuntimeError):  # transformers has no more positions either
            model(IDS[:1, :context + 1])
    assert context_of(lambda ids: ids) is None and context_of(roberta_mini(1, 8, 2, 50, n_positions=32)) == 32


def test_each_family_is_scored_as_it_reads_itself(causal):
    model, context = causal
    expected = np.concatenate([nll_of(model, IDS[0, :21]), nll_of(model, IDS[0, 20:])])
    np.testing.assert_allclose(perplexity(model, IDS[0], 20, 0).target_nll, expected, rtol=1e-4, atol=1e-5)
    sums, _ = continuation_nll(model, [IDS[0, :5], IDS[1, :3]], [IDS[0, 5:20], IDS[1, 3:9]])
    wanted = [nll_of(model, IDS[0, :20])[4:].sum(), nll_of(model, IDS[1, :9])[2:].sum()]
    np.testing.assert_allclose(sums, wanted, rtol=1e-5)
    if context:
        with pytest.raises(ReproError, match=f"context ends at {context}"):
            perplexity(model, IDS[0], context + 1, 0)


def test_each_family_trains_on_the_loss_of_its_own(causal):
    model, context = causal
    loss = WindowedLM(model, 12)(IDS[:, :13])
    expected = model(input_ids=IDS[:, :13], labels=IDS[:, :13]).loss
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    ours, theirs = (torch.autograd.grad(x, weights, allow_unused=True) for x in (loss, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    if context:
        with pytest.raises(ReproError, match=f"context ends at {context}"):
            WindowedLM(model, context + 1)


def test_each_family_goes_on_as_without_a_cache(causal):
    model, context = causal
    ids, nats = continued(model, IDS[:, :9], 5)
    for row, text, losses in zip(ids, IDS[:, :9].tolist(), nats, strict=True):
        for token, loss in zip(row, losses, strict=True):
            with torch.no_grad():
                told = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].double().log_softmax(0)
            assert token == int(told.argmax()) and loss == pytest.approx(-float(told[token]), rel=1e-3)
            text.append(int(token))
    if context:
        with pytest.raises(ReproError, match=f"context of {context}"):
            continued(model, IDS[:, :20], 6)


def test_each_family_shows_how_far_back_it_looks(causal):
    model, _ = causal
    texts = IDS[:, :13]
    size, _ = dependence(model, texts, texts.flip(0), window=4, overlap=0)
    assert (size == 0).all()  # windows that share nothing
    size, _ = dependence(model, texts, texts.flip(0), window=4, overlap=3)
    assert size.shape == (2, 2) and (size[0] > 0).all()


def test_what_is_no_causal_language_model_is_refused(refused):
    model, words = refused
    for ask in (lambda: perplexity(model, IDS[0], 10, 0), lambda: WindowedLM(model, 10),
                lambda: continuation_nll(model, IDS[:, :5], IDS[:, 5:9]), lambda: continued(model, IDS[:, :5], 2),
                lambda: dependence(model, IDS[:, :13], IDS[:, :13], 4)):
        with pytest.raises(ReproError, match=words):
            ask()


def test_a_longformer_sees_what_it_is_to_predict():
    model = Longformer.from_roberta(roberta_mini(1, 8, 2, 32, n_positions=32), max_positions=32, window=8)
    with pytest.raises(ReproError, match="not causal"):
        perplexity(model, IDS[0], 10, 0)


def test_a_model_without_a_cache_does_not_go_on():
    model = made("MambaForCausalLM", {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4})
    with pytest.raises(ReproError, match="does not use transformers' key/value cache"):
        continued(model, IDS[:, :5], 2)


def test_a_function_with_the_config_of_a_model_is_scored_by_its_own_logits(tiny_recurrent):
    model = tiny_recurrent()
    masked = MaskedOut(model)
    with torch.no_grad():
        told = model(IDS[:1, :12], window=12, recurrent=False).logits[0, :11].double().log_softmax(-1)
    expected = -told.gather(1, IDS[0, 1:12, None]).sum()
    assert perplexity(masked, IDS[0, :12], 12, 0).nll == pytest.approx(float(expected), rel=1e-5)
    assert continuation_nll(masked, [IDS[0, :1]], [IDS[0, 1:12]])[0] == pytest.approx([float(expected)], rel=1e-5)
