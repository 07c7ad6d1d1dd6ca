"""A cache of keys and values in pages."""
import numpy as np

from . import _core
from ._arrays import engine_array, like, sizes
from ._attention import score_arrays
from ._core import AttentionSpec
from ._tokens import make_tokens


class KvCache:
    """Keys and values of many sequences and layers, in pages that forks share until one of them writes.

    layers       one AttentionSpec, or a list with one a layer
    page_size    tokens a page; 16 to 256, a multiple of 16
    max_pages    of all heads of one layer, in all; 0: no limit
    key_type, value_type
                 "f32" or "bf16" (rounded to nearest even when written; attention reads what is stored)
    rope_length  tokens each sequence is set up for, for scalings that depend on it
    poison       fill free slots with NaN, to see that nobody reads them

    Storage only: what is visible is the mask's business. Positions are the caller's; by default they go on where
    the sequence ended. Calls from several threads wait for each other. What fails (ValueError) changes nothing.
    """

    def __init__(self, layers, *, page_size=64, max_pages=0, key_type="f32", value_type="f32", rope_length=0,
                 poison=False):
        layers = [layers] if isinstance(layers, AttentionSpec) else list(layers)
        self._cache = _core.KvCache(layers, page_size, max_pages, key_type, value_type, rope_length, poison)

    def add_sequence(self):
        """The id of a new, empty sequence. Ids are never used twice."""
        return self._cache.add_sequence()

    def remove_sequence(self, sequence):
        """Forgets a sequence; pages that no other shares become free."""
        self._cache.remove_sequence(sequence)

    def append(self, sequence, keys=None, values=None, *, num_tokens=None, pos=None, rope_pos=None, segment=None,
               span=None, flags=None, valid=None):
        """Opens the next ordinals of a sequence, and writes their keys and values.

        keys, values  [tokens, num_kv_heads, dim], keys before rotation; a list with one array a layer when there
                      are several. None: only the places are opened, num_tokens of them (or one for each entry of
                      pos), and `write` fills each layer
        pos           positions; None: they go on after the last token's
        rope_pos      what rotates the keys; None: equal to pos
        segment, span, flags
                      as in `attention`; None: the segment of the last token, no span, no flags
        valid         False: padding, which is not stored and takes no ordinal and no position

        Cost: the tokens appended. ValueError names what does not fit, or the pages that are missing.
        """
        layers = self._per_layer(keys, values)
        count = sizes(layers[0][0], "keys")[1] if layers else num_tokens
        if count is None:
            count = len(pos)
        begin = self.length(sequence)
        if count == 0:
            return
        self._cache.append(sequence, self._new_tokens(sequence, begin, count, pos, rope_pos, segment, span, flags,
                                                      valid))
        try:
            for layer, (k, v) in enumerate(layers):
                self.write(sequence, layer, k, v)
        except BaseException:
            self._cache.truncate(sequence, begin)
            raise

    def write(self, sequence, layer, keys, values):
        """Writes keys and values of the last `append` for one layer; a row for each of its tokens."""
        self._cache.write(sequence, layer, engine_array(keys, "keys"), engine_array(values, "values"))

    def attention(self, q, sequence, *, layer=0, bias=None, dense=None, return_lse=False, num_threads=0, **tokens):
        """Attention of queries on what sequences hold.

        q         [tokens, num_q_heads, dim], with the id of a sequence; or [batch, tokens, num_q_heads, dim] with
                  a list of ids. Before rotation
        bias, dense
                  as in `attention`; a key's column is its ordinal
        tokens    q_pos, q_rope_pos, q_segment, q_span, q_flags; queries without positions are the last tokens of
                  the sequence

        The result has the bits of `attention` on the same keys, evicted ones left out, when stored as f32.
        """
        single = isinstance(sequence, (int, np.integer))
        ids = [sequence] if single else list(sequence)
        q_len = sizes(q, "q")[1]
        lengths = [self.length(s) for s in ids]
        spec = self._cache.layer(layer) if 0 <= layer < self.num_layers else None
        if spec is None:
            raise ValueError(f"layer is {layer}, expected 0 to {self.num_layers - 1}")
        own, bias, dense = score_arrays(spec, bias, dense, len(ids), q_len, max(lengths, default=0))
        if own != spec:
            raise ValueError(f"dense: the mask of layer {layer}, {spec.mask!r}, has no rule dense")
        out, lse = self._cache.attention(engine_array(q, "q"), ids, layer,
                                         self._query_tokens(ids, lengths, q_len, tokens), bias, dense, num_threads)
        shape = tuple(q.shape)[:-1]
        out = like(out.reshape(*shape, spec.v_head_dim), q)
        return (out, lse.reshape(shape)) if return_lse else out

    def truncate(self, sequence, num_tokens):
        """Drops ordinals >= num_tokens (rejected drafts). ValueError where a window has freed what is left to see."""
        self._cache.truncate(sequence, num_tokens)

    def evict(self, sequence, begin, end):
        """Drops ordinals [begin, end) in every layer; ordinals and positions of the others stay."""
        self._cache.evict(sequence, begin, end)

    def shift(self, sequence, begin, end, delta):
        """Moves ordinals [begin, end) by `delta` positions and turns their stored keys by exactly that."""
        self._cache.shift(sequence, begin, end, delta)

    def fork(self, sequence):
        """The id of a new sequence that shares every page; a page is copied when either side writes to it."""
        return self._cache.fork(sequence)

    def length(self, sequence):
        """Ordinals opened so far, evicted ones included; padding takes none."""
        return self._cache.length(sequence)

    def num_valid(self, sequence):
        """Tokens that are not evicted."""
        return self._cache.num_valid(sequence)

    def tokens(self, sequence, begin=0, end=None):
        """Coordinates of ordinals [begin, end) as arrays by name: pos, rope_pos, segment, span, flags, valid..."""
        return self._cache.tokens(sequence, begin, self.length(sequence) if end is None else end)

    @property
    def stats(self):
        """Pages and bytes: num_pages_allocated, num_pages_free, bytes_allocated, bytes_used, bytes_metadata."""
        return self._cache.stats()

    @property
    def num_layers(self):
        """Layers that every sequence has."""
        return self._cache.num_layers

    def _per_layer(self, keys, values):
        if keys is None and values is None:
            return []
        if self.num_layers == 1 and hasattr(keys, "shape"):
            keys, values = [keys], [values]
        pairs = list(zip(keys, values))
        if len(pairs) != self.num_layers or len(keys) != len(values):
            raise ValueError(f"append: {len(keys)} arrays of keys and {len(values)} of values, expected one for each "
                             f"of {self.num_layers} layers")
        return pairs

    def _new_tokens(self, sequence, begin, count, pos, rope_pos, segment, span, flags, valid):
        last = self.tokens(sequence, max(0, begin - 1), begin)
        if pos is None:
            real = np.ones(count, np.int64) if valid is None else (np.asarray(valid).reshape(-1) != 0)
            pos = np.cumsum(real) - real + (last["pos"][0] + 1 if begin else 0)
            if rope_pos is None and begin and last["rope_pos"][0] != last["pos"][0]:
                rope_pos = pos + (last["rope_pos"][0] - last["pos"][0])
        if segment is None and begin:
            segment = np.broadcast_to(last["segment"], count)
        return make_tokens(count, count, kv_pos=pos, kv_rope_pos=rope_pos, kv_segment=segment, kv_span=span,
                           kv_flags=flags, valid=valid)[1]

    def _query_tokens(self, ids, lengths, q_len, given):
        known = {"q_pos", "q_rope_pos", "q_segment", "q_span", "q_flags"}
        if not known.issuperset(given):
            raise ValueError(f"attention: {sorted(set(given) - known)} is of keys, which the cache knows")
        if min(lengths, default=0) < q_len:
            if "q_pos" not in given:
                raise ValueError(f"{q_len} queries on {min(lengths)} cached tokens: give q_pos, they cannot all be "
                                 "the last tokens")
            tails = {}
        else:
            each = [self.tokens(s, n - q_len) for s, n in zip(ids, lengths)]
            tails = {name: np.concatenate([t[name] for t in each])
                     for name in ("pos", "rope_pos", "segment", "span", "flags")}
        kv = {f"kv_{name}": column for name, column in tails.items()}
        return make_tokens(q_len, q_len, len(ids), **kv, **given)[0]
