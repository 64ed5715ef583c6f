"""The zero-shot sets for a language model (Radford et al. 2019, section 3), each written as text to continue.

Every function takes a model (`repro.models.GPT`, or, to write text, the transformers model that it was made from) and
its tokenizer, and returns lists with one number per document, passage, question or article.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, log

from repro.errors import ReproError

BLANK = "XXXXX"
HINT, SCRAMBLED = "\nTL;DR:", "\nRD;TL:"  # section 3.6, and the same characters in another order
STRETCH = 10_000  # characters of running text whose losses are stored as one sum
ANSWER = 12  # tokens of an answer

# English function words, which are almost never the last word of a LAMBADA passage.
STOP_WORDS = tuple("""a about above after again against all am an and any are as at be because been before being below
    between both but by can did do does doing don down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just me more most my myself no nor not now of off on
    once only or other our ours ourselves out over own same she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up very was we were what when where which
    while who whom why will with you your yours yourself yourselves""".split())


def language(model, coder, name: str, config, rewrite: Callable[[str], str] = str) -> dict[str, list]:
    """Nats, tokens, words and bytes of each document of a corpus' test split; a single long text is cut in stretches.

    rewrite: applied to a text before it is read, such as a de-tokenizer; words and bytes are those of the original
    text. In running text (WikiText), line ends count as words.
    """
    import numpy as np

    from repro.evaluation import score_documents

    parts = texts(name, config.documents)
    tokens = as_tokens([rewrite(text) for text, _, _ in parts], coder, joined=True)
    _, nll = score_documents(model, tokens, config.window, config.overlap)
    lengths = np.diff(tokens.starts, append=len(tokens.ids))
    return {"nll": nll.tolist(), "n_tokens": lengths.tolist(), "n_words": [n for _, n, _ in parts],
            "n_bytes": [n for _, _, n in parts]}


def texts(name: str, most: int | None) -> list[tuple[str, int, int]]:
    """(text, words, bytes) of the first `most` documents of a test split, or of the stretches of a single long text.

    A character that was cut in half (enwik8's part may end inside one) is left out.
    """
    from repro.data import corpus
    from repro.data.tokenisation import pieces

    source = corpus(name)
    found = [one.content.decode(errors="ignore") for one in source.documents("test")]
    if len(found) == 1:
        found = list(pieces(found[0], STRETCH))
    return [(text, source.n_words(text), len(text.encode())) for text in found[:most]]


def as_tokens(parts: Sequence[str], coder, joined: bool):
    """`parts` as one stream (`repro.data.Tokens`) that begins with <|endoftext|>."""
    import numpy as np

    from repro.data import Tokens

    ids = [coder.encode(text) for text in parts]
    starts = 1 + np.cumsum([0, *(len(one) for one in ids[:-1])])
    nothing = np.zeros(len(parts), np.int64)
    return Tokens(np.concatenate([[coder.bos], *ids]).astype(np.int32), starts, nothing, nothing, coder.bos, joined)


def fewer_blanks(text: str, rewritten: str, seed: int = 0) -> str:
    """`text` with as many spaces removed, at random positions, as `rewritten` has fewer."""
    places = [found.start() for found in re.finditer(" ", text)]
    n = max(0, min(len(places), text.count(" ") - rewritten.count(" ")))
    out = set(random.Random(seed).sample(places, n))
    return "".join(sign for place, sign in enumerate(text) if place not in out)


def last_words(model, coder, passages: Sequence[str], whole_words: bool = True) -> dict[str, list]:
    """LAMBADA: nats of each last word, and whether it is predicted: without bars, with stop words barred, and with
    other words barred. whole_words: see `repro.evaluation.lambada`."""
    from repro.evaluation.zero_shot import lambada_with_bars

    bars = {"correct": (), "correct_stop_words": STOP_WORDS, "correct_other_words": other_words(coder, passages)}
    scores = lambada_with_bars(model, coder, passages, list(bars.values()), whole_words=whole_words)
    return {"nll": scores[0].nll.tolist()} | {
        name: one.correct.astype(int).tolist() for name, one in zip(bars, scores, strict=True)}


def impossible(coder, passages: Sequence[str]) -> int:
    """How many last words cannot be predicted if stop words of one token are barred as first tokens: words of several
    tokens that begin with one."""
    barred = {ids[0] for ids in (coder.encode(f" {word}").tolist() for word in STOP_WORDS) if len(ids) == 1}
    words = [coder.encode(f" {passage.rpartition(' ')[2]}").tolist() for passage in passages]
    return sum(len(word) > 1 and word[0] in barred for word in words)


def other_words(coder, passages: Sequence[str]) -> list[str]:
    """As many other words of one token as there are stop words of one token: the most frequent ones in the passages,
    before their last words. Rare words would be no control, because a model almost never predicts them."""
    def short(word: str) -> bool:
        return len(coder.encode(f" {word}")) == 1

    counts = Counter(word for passage in passages for word in passage.split()[:-1] if re.fullmatch("[a-z]{2,}", word))
    frequent = [word for word, _ in counts.most_common() if word not in STOP_WORDS and short(word)]
    return frequent[:sum(map(short, STOP_WORDS))]


def clozes(model, coder, rows: Sequence) -> dict[str, list]:
    """Whether the right candidate is chosen: the one that is most probable together with the rest of the sentence.

    commonest: whether the most frequent candidate in the context is right, the last mentioned of equal ones. The right
    one always occurs there, and in a book with few names others may not, so copying alone answers some clozes. book:
    the book of each cloze.
    """
    import numpy as np

    from repro.evaluation.generation import branch_nll

    found, common = [], []
    for row in rows:
        common.append(int(commonest(row.paragraphs, row.candidates) == row.answer))
        before, _, after = row.question.partition(BLANK)
        prefix = " ".join([*row.paragraphs, before]).rstrip(" ")
        blank = " " if not before or before.endswith(" ") else ""
        branches = [coder.encode(f"{blank}{word}{after}") for word in row.candidates]
        room = max(1, model.config.n_positions - max(map(len, branches)))  # or long texts would be refused
        chosen = int(np.argmin(branch_nll(model, coder.encode(prefix)[-room:], branches)))
        found.append(int(chosen == row.answer))
    return {"correct": found, "commonest": common, "book": [row.id.rpartition("-")[0] for row in rows]}


def commonest(paragraphs: Sequence[str], candidates: Sequence[str]) -> int:
    """The index of the most frequent candidate in a text, the last mentioned of equal ones."""
    from repro.data.clozes import WORD

    places: dict[str, list[int]] = {word: [] for word in candidates}
    for place, word in enumerate(WORD.findall(" ".join(paragraphs))):
        places.get(word, []).append(place)
    return max(range(len(candidates)), key=lambda k: (len(places[candidates[k]]), places[candidates[k]][-1:]))


def reading(model, coder, rows: Sequence) -> dict[str, list]:
    """F1 of answers written after "A:", with the supporting paragraphs and with the question alone."""
    from repro.evaluation.answers import answer_scores

    asked = [f"Q: {row.question}\nA:" for row in rows]
    given = ["\n".join(row.paragraphs[k].text for k in dict.fromkeys(k for k, _ in row.supporting) or [0])
             for row in rows]
    answered = {"f1": answers(model, coder, [f"{text}\n" for text in given], asked),
                "f1_alone": answers(model, coder, [""] * len(rows), asked)}
    return {name: [answer_scores(text, row.answer, "squad")[1] for row, (text, _) in zip(rows, some, strict=True)]
            for name, some in answered.items()}


def answers(model, coder, contexts: Sequence[str], asked: Sequence[str], n_new: int = ANSWER
            ) -> list[tuple[str, float]]:
    """The line that a model writes greedily after each question, and its probability, including the line end; if the
    line does not end within `n_new` tokens, the probability of these. Contexts that are too long lose their
    beginning."""
    from repro.evaluation.generation import continued

    room = model.config.n_positions - n_new
    prompts = [coder.encode(context + question)[-room:] for context, question in zip(contexts, asked, strict=True)]
    ids, nats = continued(model, prompts, n_new)
    found = []
    for row, losses in zip(ids.tolist(), nats, strict=True):
        n = next((k for k in range(1, n_new + 1) if "\n" in coder.decode(row[:k])), n_new + 1) - 1
        found.append((coder.decode(row[:n]).strip(), exp(-losses[:n + 1].sum())))  # includes the token of the line end
    return found


def closed_book(model, coder, rows: Sequence, shown: Sequence) -> tuple[dict[str, list], list[dict]]:
    """Questions without any text, after a few questions with answers: whether each answer is right, and the answers.

    correct_other: whether the answer fits the next question. most_common: whether the commonest answer of the questions
    `shown` that begin with the same word is right. Raises ReproError for fewer than two questions.
    """
    from repro.evaluation.answers import answer_scores

    if len(rows) < 2:
        raise ReproError(f"there are {len(rows)} questions without a text; give at least 2, because answers are also "
                         "compared with those of other questions.")
    examples = "".join(f"Q: {row.question}\nA: {row.answer}\n" for row in shown[:SHOTS])
    answered = answers(model, coder, [examples] * len(rows), [f"Q: {row.question}\nA:" for row in rows])
    kinds: dict[str, Counter] = {}
    for row in shown:
        kinds.setdefault(_first(row), Counter())[row.answer] += 1
    every = Counter(row.answer for row in shown)
    common = [kinds.get(_first(row), every).most_common(1)[0][0] for row in rows]
    def right(answered: str, row) -> int:
        return int(answer_scores(answered, row.answer, "squad")[0])

    found = {"correct": [right(text, row) for row, (text, _) in zip(rows, answered, strict=True)],
             "correct_other": [right(text, rows[(k + 1) % len(rows)]) for k, (text, _) in enumerate(answered)],
             "most_common": [right(one, row) for row, one in zip(rows, common, strict=True)],
             "probability": [share for _, share in answered]}
    written = [{"question": row.question, "answer": text, "correct": hit, "probability": share}
               for row, (text, share), hit in zip(rows, answered, found["correct"], strict=True)]
    return found, sorted(written, key=lambda one: -one["probability"])[:30]


SHOTS = 5  # questions with answers before the question to answer


def _first(row) -> str:
    return row.question.split()[0].lower()


def summaries(model, coder, rows: Sequence, seed: int, n_new: int, top_k: int = 2) -> dict[str, list]:
    """ROUGE-1, -2 and -L (F1, x 100) of three sentences: written with the hint, without it, with a scrambled one; the
    first three of the article, and three random ones."""
    from repro.data.clozes import sentences
    from repro.evaluation.generation import continued
    from repro.evaluation.summaries import rouge_l, rouge_n

    written: dict[str, list[str]] = {}
    for name, hint in (("hint", HINT), ("no_hint", "\n"), ("scrambled", SCRAMBLED)):
        end = coder.encode(hint).tolist()
        room = model.config.n_positions - n_new - len(end)
        prompts = [[*coder.encode(row.document)[:room].tolist(), *end] for row in rows]
        ids, _ = continued(model, prompts, n_new, top_k, seed)
        written[name] = [" ".join(sentences(coder.decode(row))[:3]) for row in ids.tolist()]
    parts = [sentences(row.document) for row in rows]
    draw = random.Random(seed)
    written["lede_3"] = [" ".join(some[:3]) for some in parts]
    written["random_3"] = [" ".join(draw.sample(some, min(3, len(some)))) for some in parts]
    measures = {"rouge1": lambda a, b: rouge_n(a, b, 1), "rouge2": lambda a, b: rouge_n(a, b, 2), "rougeL": rouge_l}
    return {f"{name}_{measure}": [100 * score(row.summary, text) for row, text in zip(rows, some, strict=True)]
            for name, some in written.items() for measure, score in measures.items()}


def translations(model, coder, rows: Sequence, shown: Sequence, n_new: int = ANSWER) -> tuple[dict[str, list], float]:
    """Translations after a few "english = french" pairs: whether each is right word for word, its F1, and the BLEU of
    all (Papineni et al. 2002, by sacrebleu; for texts of two words, by single words and pairs)."""
    from sacrebleu.metrics import BLEU

    from repro.evaluation.answers import answer_scores

    examples = "".join(f"{row.document} = {row.summary}\n" for row in shown[:SHOTS])
    asked = answers(model, coder, [examples] * len(rows), [f"{row.document} =" for row in rows], n_new)
    translated = [text for text, _ in asked]
    wanted = [row.summary for row in rows]
    found = {"correct": [int(a == b) for a, b in zip(translated, wanted, strict=True)],
             "f1": [answer_scores(a, b, "squad")[1] for a, b in zip(translated, wanted, strict=True)]}
    return found, BLEU(effective_order=True).corpus_score(translated, [wanted]).score


def bits(nll: Sequence[float], n: Sequence[float]) -> float:
    """Bits per byte."""
    return sum(nll) / log(2) / sum(n)
