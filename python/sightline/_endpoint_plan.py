"""What a server is asked within a budget of requests: texts of several lengths, some again, some as a beginning."""
from dataclasses import dataclass

TEXTS = (
    "The capital of France is Paris, and the river that runs through it is called the Seine.",
    "In 1969 two people walked on the Moon; a third stayed in orbit and waited for them to come back.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))\n",
    "A list of fruit: apple, pear, cherry, apple, pear, cherry, apple, pear, cherry, apple, pear, cherry.",
    "To make bread you need flour, water, salt and yeast. Mix them, wait an hour, knead, wait again, and bake.",
    "She sells sea shells by the sea shore; the shells that she sells are sea shells, I am sure.",
    # Long ones: a wrong base or scale of the rotation shows with the distance.
    "Once upon a time there was a miller who had three sons, a mill, a donkey and a cat. When he died, the eldest "
    "son took the mill, the second took the donkey, and nothing was left for the youngest but the cat. He sat down "
    "by the road and said to himself: my brothers can earn their bread together, but what can I do with a cat? I "
    "could have a pair of gloves made of its fur, and then I would have nothing at all. The cat had heard every "
    "word and answered: do not worry, master. Give me a bag and a pair of boots, so that I can walk through the "
    "bushes, and you will see that your share is not as poor as you think. The miller's youngest son had little "
    "hope, but he had seen the cat play many clever tricks to catch rats and mice, so he gave it what it asked for.",
    "The meeting of 3 March began at 9:30. Present were Anna, Bruno, Clara and David; Emil was ill. First, Anna "
    "read the minutes of the last meeting, and nobody objected. Second, Bruno reported on the budget: of 12,400 "
    "euros, 7,150 had been spent, most of it on the new roof. Clara asked whether the roof would be finished before "
    "the summer, and Bruno said that it would, if the weather allowed it. Third, David proposed to move the next "
    "meeting to 7 April, because Anna and Clara would be away at the end of March. All agreed. Fourth, Clara asked "
    "who would buy the gift for Emil; David will. The meeting ended at 10:15. The minutes were written by Anna and "
    "sent to Bruno, Clara, David and Emil.",
)

_LENGTHS = (48, 128, 256, 384)  # tokens of texts made of our sentences, as far as they fit the model's context


@dataclass(frozen=True)
class Request:
    """One request.

    text  what is asked
    kind  "new"; "again": a text that was asked before; "longer": one that begins with a text asked before
    of    index of that request; -1 for a new text
    """
    text: str
    kind: str = "new"
    of: int = -1


def _sentences():
    return [sentence.strip(" \n.") + ". " for text in TEXTS if "\n" not in text for sentence in text.split(". ")]


def _joined(fits, count, length, first):
    """Our sentences from the `first` on, until they make `length` tokens; "" where that does not fit."""
    sentences, text = _sentences(), ""
    for i in range(4 * len(sentences)):
        if count(text) >= length:
            return text.strip() if fits(text) else ""
        text += sentences[(first + i) % len(sentences)]
    return ""


def make_plan(model, budget, texts=None, again=True):
    """`budget` requests: first every new text; then, by turns, one of them again and one with a sentence behind it.

    model   has `encode` and `context_length`
    texts   of the caller: each is asked, and then each again, nothing else. None: our own
    again   False: only new texts
    """
    if texts is not None:
        plan = [Request(text) for text in list(texts)[:budget]]
        return plan + [Request(r.text, "again", i) for i, r in enumerate(plan[:budget - len(plan)]) if again]
    count = lambda text: len(model.encode(text)) if text else 0  # noqa: E731
    fits = lambda text: count(text) < model.context_length  # noqa: E731
    new = [text for text in TEXTS if fits(text)]
    new += [text for i, length in enumerate(_LENGTHS) if (text := _joined(fits, count, length, 5 * i + 3))]
    plan = [Request(text) for text in new[:budget]]
    sentences, num_new = _sentences(), len(plan)
    for turn in range(budget - num_new if num_new and again else 0):
        # From the last on: what was asked longest ago is least likely still kept.
        of = turn // 2 % num_new
        longer = plan[of].text + " " + sentences[(turn + of) % len(sentences)].strip()
        is_longer = turn % 2 == 1 and fits(longer)
        plan.append(Request(longer, "longer", of) if is_longer else Request(plan[of].text, "again", of))
    return plan


def describe(plan):
    """"12 texts, 24 asked again, 24 that begin with one asked before"."""
    parts = [f"{sum(r.kind == 'new' for r in plan)} texts"]
    for kind, words in (("again", "asked again"), ("longer", "that begin with one asked before")):
        number = sum(r.kind == kind for r in plan)
        parts += [f"{number} {words}"] * (number > 0)
    return ", ".join(parts)
