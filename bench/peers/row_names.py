"""Names of rows of `sightline bench` that rivals run too, read into shapes. Knows no array and no engine."""
import dataclasses
import fnmatch
import re


@dataclasses.dataclass(frozen=True)
class ModelCase:
    name: str
    is_prompt: bool
    num_tokens: int
    depth: int


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    name: str
    dtype: str          # f32, bf16
    mask: str           # dense, causal, window256, documents, blocks128-25, ...
    q_heads: int
    kv_heads: int
    dim: int
    num_q: int
    num_kv: int
    backward: bool = False

    @property
    def is_chunk(self):
        return 1 < self.num_q < self.num_kv

    @property
    def is_decode(self):
        return self.num_q == 1


def parse(name, attention=AttentionCase):
    """The case of a row's name, an `attention` or a ModelCase; None where no rival runs the like."""
    if match := re.fullmatch(r"(pp|tg)(\d+)(?: @ d(\d+))?", name):
        return ModelCase(name, match[1] == "pp", int(match[2]), int(match[3] or 0))
    if match := re.fullmatch(r"(backward-)?(f32|bf16)-(dense|causal)-d(\d+)-T(\d+)", name):
        tokens = int(match[5])
        return attention(name, match[2], match[3], 4, 4, int(match[4]), tokens, tokens, bool(match[1]))
    if match := re.fullmatch(r"(?:mask-)?(window256|window1024|documents|blocks128-25)-(f32|bf16)-d(\d+)-T(\d+)", name):
        tokens = int(match[4])
        return attention(name, match[2], match[1], 4, 4, int(match[3]), tokens, tokens)
    if match := re.fullmatch(r"chunk512-(f32|bf16)-paged-d128-k(\d+)", name):
        return attention(name, match[1], "causal", 32, 8, 128, 512, int(match[2]))
    if match := re.fullmatch(r"decode-(f32|bf16)-d128-k(\d+)", name):
        return attention(name, match[1], "causal", 32, 8, 128, 1, int(match[2]))
    return None


def select(pattern, families):
    """The rows of `families` {row: family} that parts of `pattern` choose, as `sightline bench --rows` does, and that
    a rival runs."""
    parts = pattern.split(",")
    return [row for row, family in families.items() if parse(row) is not None
            and any(part in ("all", family) or fnmatch.fnmatchcase(row, part) for part in parts)]
