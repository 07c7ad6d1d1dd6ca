// KvCache for Python: one lock around it, because calls leave the interpreter's lock. Defaults of positions
// and shapes are Python's (_kv_cache.py).
#include <mutex>

#include "arrays.h"
#include "bind.h"
#include "docstrings.h"
#include "engine.h"
#include "sightline/kv_cache/kv_cache.h"

namespace sightline::python {

namespace {

StorageType storage_type(const std::string& word, const char* name) {
  if (word == "f32") return StorageType::kF32;
  if (word == "bf16") return StorageType::kBf16;
  throw nb::value_error(fmt::format("{} is '{}', expected 'f32' or 'bf16'", name, word).c_str());
}

struct LockedCache {
  std::vector<AttentionSpec> layers;
  KvCache cache;
  std::mutex mutex;

  // Runs `body` without the interpreter's lock, alone on this cache; an error becomes ValueError.
  template <typename Body>
  auto alone(Body body) {
    using Got = decltype(body());
    Got got = [&] {
      const nb::gil_scoped_release released;
      const std::lock_guard lock(mutex);
      return body();
    }();
    return unwrap(std::move(got));
  }
};

// Where segments start that the sequence knows already; new ones start at their first valid token.
void set_segment_starts(std::span<TokenCoord> coords, std::span<const TokenCoord> known) {
  std::optional<std::pair<std::int32_t, std::int64_t>> last;
  for (TokenCoord& coord : coords) {
    if (last && last->first == coord.segment) {
      coord.segment_start = last->second;
      continue;
    }
    const auto of_segment = [&](const TokenCoord& c) { return c.segment == coord.segment; };
    const auto found = std::find_if(known.rbegin(), known.rend(), of_segment);
    if (found != known.rend()) {
      coord.segment_start = found->segment_start;
    } else if (const auto first = std::find_if(coords.begin(), coords.end(),
                                               [&](const TokenCoord& c) { return c.valid && of_segment(c); });
               first != coords.end()) {
      coord.segment_start = first->pos;
    }
    last = {coord.segment, coord.segment_start};
  }
}

/// Rows of keys and values of one `write`, one sequence.
StridedView<const float, 3> one_sequence(const Rows& rows, const char* name) {
  if (rows.num_sequences() != 1) {
    throw nb::value_error(fmt::format("{} has {} sequences, expected 1", name, rows.num_sequences()).c_str());
  }
  return rows.sequence(0);
}

void append(LockedCache& self, SequenceId sequence, const Tokens& tokens) {
  self.alone([&]() -> Result<void> {
    SIGHTLINE_TRY(const KvView view, self.cache.view(sequence, 0));
    std::vector<TokenCoord> coords = tokens.coords;
    set_segment_starts(coords, view.coords);
    return self.cache.append(sequence, coords, tokens.rope_pos);
  });
}

void write(LockedCache& self, SequenceId sequence, int layer, const AnyArray& keys, const AnyArray& values) {
  const Rows k(keys, "keys");
  const Rows v(values, "values");
  const auto k_rows = one_sequence(k, "keys");
  const auto v_rows = one_sequence(v, "values");
  self.alone([&] { return self.cache.write(sequence, layer, k_rows, v_rows); });
}

struct Attend {
  const std::vector<SequenceId>& sequences;
  int layer;
  const Rows& q;
  const Tokens& tokens;
  StridedView<const float, 4> bias{};
  std::span<const MaskTables> tables;
};

Result<void> attend(LockedCache& self, const Attend& call, std::span<float> out, std::span<float> lse,
                    AttentionContext& context) {
  if (call.layer < 0 || call.layer >= self.cache.num_layers()) {
    return fail(ErrorKind::kInvalidArgument, "KvCache.attention: layer {}, expected 0 to {}", call.layer,
                self.cache.num_layers() - 1);
  }
  const AttentionSpec& spec = self.layers[static_cast<std::size_t>(call.layer)];
  const std::int64_t q_len = call.q.num_tokens();
  const std::int64_t heads = spec.heads.num_q_heads;
  const std::int64_t v_dim = spec.heads.v_head_dim;
  std::vector<TokenCoord> coords = call.tokens.coords;
  // Each row's bits are its own, so sequences go one by one: their arrays need not lie together.
  for (std::size_t s = 0; s < call.sequences.size(); ++s) {
    const std::int64_t first = static_cast<std::int64_t>(s) * q_len;
    SIGHTLINE_TRY(const KvView view, self.cache.view(call.sequences[s], call.layer));
    const std::span own =
        std::span(coords).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(q_len));
    set_segment_starts(own, view.coords);
    const std::vector<std::int64_t> offsets{0, q_len};
    QueryBatch queries{offsets, own, {}};
    if (!call.tokens.rope_pos.empty()) {
      queries.rope_pos = std::span(call.tokens.rope_pos)
                             .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(q_len));
    }
    const PagedKv kv{{&view, 1}};
    AttentionExtras extras;
    extras.rope_length = self.cache.options().rope_length;
    if (call.bias.data != nullptr) {
      extras.bias = entry(call.bias, static_cast<std::int64_t>(s));
      // One width for all sequences; each has as many columns as it has tokens.
      extras.bias.shape[2] = std::min(extras.bias.shape[2], view.num_slots);
    }
    if (!call.tables.empty()) extras.tables = call.tables.subspan(s, 1);
    SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(spec, queries, kv, extras));
    SIGHTLINE_CHECK(
        attention_forward(spec, plan, call.q.sequence(static_cast<std::int64_t>(s)), queries, kv, extras,
                          dense_view<float, 3>(out.data() + first * heads * v_dim, {q_len, heads, v_dim}),
                          dense_view<float, 2>(lse.data() + first * heads, {q_len, heads}), context));
  }
  return {};
}

nb::tuple attention(LockedCache& self, const AnyArray& q_array, const std::vector<SequenceId>& sequences,
                    int layer, const Tokens& tokens, const std::optional<AnyArray>& bias,
                    const std::optional<AnyArray>& dense, int num_threads) {
  const Rows q(q_array, "q");
  if (q.num_sequences() != static_cast<std::int64_t>(sequences.size())) {
    throw nb::value_error(
        fmt::format("q has {} sequences, expected {}", q.num_sequences(), sequences.size()).c_str());
  }
  Attend call{sequences, layer, q, tokens};
  if (bias) call.bias = typed_view<float, 4>(*bias, "bias");
  const std::vector<MaskTables> tables = dense ? mask_tables(*dense) : std::vector<MaskTables>{};
  call.tables = tables;
  const std::size_t layer_idx =
      layer < 0 || layer >= self.cache.num_layers() ? 0 : static_cast<std::size_t>(layer);
  const HeadSpec& head = self.layers[layer_idx].heads;
  const auto rows = static_cast<std::size_t>(q.num_sequences() * q.num_tokens());
  const auto heads = static_cast<std::size_t>(head.num_q_heads);
  const auto v_dim = static_cast<std::size_t>(head.v_head_dim);
  std::vector<float> out(rows * heads * v_dim);
  std::vector<float> lse(rows * heads);
  self.alone([&]() -> Result<void> {
    const EngineLease engine(num_threads);
    return attend(self, call, out, lse, engine.context());
  });
  return nb::make_tuple(to_numpy(std::move(out), {rows, heads, v_dim}),
                        to_numpy(std::move(lse), {rows, heads}));
}

template <typename T, typename Get>
nb::ndarray<nb::numpy, T> column(std::span<const TokenCoord> coords, Get get) {
  std::vector<T> out;
  for (const TokenCoord& c : coords) out.push_back(static_cast<T>(get(c)));
  const std::size_t size = out.size();
  return to_numpy(std::move(out), {size});
}

nb::dict tokens(LockedCache& self, SequenceId sequence, std::int64_t begin, std::int64_t end) {
  const std::lock_guard lock(self.mutex);
  const KvView view = unwrap(self.cache.view(sequence, 0));
  if (begin < 0 || end < begin || end > view.num_slots) {
    throw nb::value_error(
        fmt::format("KvCache.tokens: [{}, {}) of {} tokens", begin, end, view.num_slots).c_str());
  }
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  const auto coords = view.coords.subspan(first, count);
  nb::dict out;
  out["pos"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.pos; });
  const auto rope_pos = view.rope_pos.subspan(first, count);
  out["rope_pos"] = to_numpy(std::vector<std::int64_t>(rope_pos.begin(), rope_pos.end()), {count});
  out["segment"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.segment; });
  out["segment_start"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.segment_start; });
  out["span"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.span; });
  out["flags"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.flags; });
  out["valid"] = column<std::int64_t>(coords, [](const TokenCoord& c) { return c.valid; });
  return out;
}

nb::dict stats(LockedCache& self) {
  const KvCacheStats got = [&] {
    const std::lock_guard lock(self.mutex);
    return self.cache.stats();
  }();
  nb::dict out;
  out["num_pages_allocated"] = got.num_pages_allocated;
  out["num_pages_free"] = got.num_pages_free;
  out["bytes_allocated"] = got.bytes_allocated;
  out["bytes_used"] = got.bytes_used;
  out["bytes_metadata"] = got.bytes_metadata;
  return out;
}

LockedCache* make(std::vector<AttentionSpec> layers, const KvCacheOptions& options) {
  KvCache cache = unwrap(KvCache::create(layers, options));
  return new LockedCache{std::move(layers), std::move(cache), {}};
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  nb::class_<LockedCache>(m, "KvCache", kDoc_kv_cache_KvCache)
      .def(nb::new_([](const std::vector<const AttentionSpec*>& layers, int page_size, std::int64_t max_pages,
                       const std::string& key_type, const std::string& value_type, std::int64_t rope_length,
                       bool poison) {
             std::vector<AttentionSpec> specs;
             for (const AttentionSpec* spec : layers) specs.push_back(*spec);
             KvCacheOptions options;
             options.page_size = page_size;
             options.max_pages = max_pages;
             options.key_type = storage_type(key_type, "key_type");
             options.value_type = storage_type(value_type, "value_type");
             options.rope_length = rope_length;
             options.poison = poison;
             return make(std::move(specs), options);
           }),
           nb::arg("layers"), nb::arg("page_size"), nb::arg("max_pages"), nb::arg("key_type"),
           nb::arg("value_type"), nb::arg("rope_length"), nb::arg("poison"))
      .def(
          "add_sequence",
          [](LockedCache& self) {
            return self.alone([&]() -> Result<SequenceId> { return self.cache.add_sequence(); });
          },
          kDoc_kv_cache_add_sequence)
      .def(
          "remove_sequence",
          [](LockedCache& self, SequenceId sequence) {
            self.alone([&] { return self.cache.remove_sequence(sequence); });
          },
          nb::arg("sequence"), "Forgets a sequence and frees the pages that no other shares.")
      .def("append", &append, nb::arg("sequence"), nb::arg("tokens"), kDoc_kv_cache_append)
      .def("write", &write, nb::arg("sequence"), nb::arg("layer"), nb::arg("keys").noconvert(),
           nb::arg("values").noconvert(), kDoc_kv_cache_write)
      .def(
          "truncate",
          [](LockedCache& self, SequenceId sequence, std::int64_t num_tokens) {
            self.alone([&] { return self.cache.truncate(sequence, num_tokens); });
          },
          nb::arg("sequence"), nb::arg("num_tokens"), kDoc_kv_cache_truncate)
      .def(
          "evict",
          [](LockedCache& self, SequenceId sequence, std::int64_t begin, std::int64_t end) {
            self.alone([&] { return self.cache.evict(sequence, begin, end); });
          },
          nb::arg("sequence"), nb::arg("begin"), nb::arg("end"), kDoc_kv_cache_evict)
      .def(
          "shift",
          [](LockedCache& self, SequenceId sequence, std::int64_t begin, std::int64_t end,
             std::int64_t delta) {
            self.alone([&] { return self.cache.shift(sequence, begin, end, delta); });
          },
          nb::arg("sequence"), nb::arg("begin"), nb::arg("end"), nb::arg("delta"), kDoc_kv_cache_shift)
      .def(
          "fork",
          [](LockedCache& self, SequenceId sequence) {
            return self.alone([&] { return self.cache.fork(sequence); });
          },
          nb::arg("sequence"), kDoc_kv_cache_fork)
      .def(
          "length",
          [](LockedCache& self, SequenceId sequence) {
            return self.alone([&] { return self.cache.length(sequence); });
          },
          nb::arg("sequence"), kDoc_kv_cache_length)
      .def(
          "num_valid",
          [](LockedCache& self, SequenceId sequence) {
            return self.alone([&] { return self.cache.num_valid(sequence); });
          },
          nb::arg("sequence"), kDoc_kv_cache_num_valid)
      .def("tokens", &tokens, nb::arg("sequence"), nb::arg("begin"), nb::arg("end"),
           "Coordinates of ordinals [begin, end), by name; valid is 0 where a token was evicted.")
      .def("stats", &stats, "Pages and bytes, by the names of KvCacheStats.")
      .def_prop_ro("num_layers", [](const LockedCache& self) { return self.cache.num_layers(); })
      .def(
          "layer", [](const LockedCache& self, std::size_t layer) { return self.layers.at(layer); },
          nb::arg("layer"), "The AttentionSpec of one layer.")
      .def("attention", &attention, nb::arg("q").noconvert(), nb::arg("sequences"), nb::arg("layer"),
           nb::arg("tokens"), nb::arg("bias").noconvert() = nb::none(),
           nb::arg("dense").noconvert() = nb::none(), nb::arg("num_threads") = 0,
           kDoc_attention_attention_forward);
}

}  // namespace sightline::python
