#include "bench/attention_case.h"

#include <algorithm>
#include <cmath>

#include "bench/attention_check.h"
#include "bench/draw.h"
#include "sightline/base/half.h"
#include "sightline/kv_cache/kv_cache.h"

namespace sightline::bench {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void round_to(StorageType type, std::vector<float>& values) {
  if (type != StorageType::kBf16) return;
  for (float& x : values) x = to_f32(to_bf16(x));
}

}  // namespace

AttentionCase self_attention(std::string name, const std::string& mask, int num_heads, int dim,
                             std::int64_t num_tokens) {
  AttentionCase c;
  c.name = std::move(name);
  c.spec.heads = {num_heads, num_heads, dim, dim};
  c.spec.mask = *parse_mask(mask);
  c.sequences = {{num_tokens, num_tokens}};
  return c;
}

struct AttentionBody::Impl {
  /// One of the caches in rotation, with all sequences.
  struct Copy {
    KvCache cache;
    std::vector<KvView> views;
  };

  Impl(const Bench& bench, AttentionCase c)
      : bench_(&bench), case_(std::move(c)), context_(*bench.pool, bench.table) {
    draw();
  }

  void draw() {
    const HeadSpec& heads = case_.spec.heads;
    q_offsets_ = kv_offsets_ = {0};
    for (const CaseSequence& sequence : case_.sequences) {
      std::vector<TokenCoord> coords = coords_range(0, sequence.num_kv);
      if (case_.mark) case_.mark(coords);
      kv_coords_.insert(kv_coords_.end(), coords.begin(), coords.end());
      q_coords_.insert(q_coords_.end(), coords.end() - sequence.num_q, coords.end());
      q_offsets_.push_back(q_offsets_.back() + sequence.num_q);
      kv_offsets_.push_back(kv_offsets_.back() + sequence.num_kv);
    }
    Rng rng(1);
    q_ = normals(num_q() * heads.num_q_heads * heads.qk_head_dim, rng);
    k_ = normals(num_kv() * heads.num_kv_heads * heads.qk_head_dim, rng);
    v_ = normals(num_kv() * heads.num_kv_heads * heads.v_head_dim, rng);
    out_.resize(at(num_q() * heads.num_q_heads * heads.v_head_dim));
    if (!case_.dense.empty()) {
      tables_.dense = dense_view<const std::uint8_t, 2>(case_.dense.data(), {num_q(), num_kv()});
      extras_.tables = {&tables_, 1};
    }
  }

  [[nodiscard]] Result<void> fill_caches() {
    const std::size_t target = case_.cache->rotation_bytes;
    std::size_t bytes = 0;
    do {
      KvCacheOptions options;
      options.key_type = options.value_type = case_.cache->type;
      SIGHTLINE_TRY(KvCache cache, KvCache::create({case_.spec}, options));
      Copy copy{std::move(cache), {}};
      std::vector<SequenceId> ids;
      for (std::size_t s = 0; s < case_.sequences.size(); ++s) {
        const std::int64_t first = kv_offsets_[s];
        const std::int64_t count = kv_offsets_[s + 1] - first;
        const SequenceId id = copy.cache.add_sequence();
        ids.push_back(id);
        SIGHTLINE_CHECK(copy.cache.append(id, std::span(kv_coords_).subspan(at(first), at(count)), {}));
        SIGHTLINE_CHECK(copy.cache.write(id, 0, slice(keys(), first, count), slice(values(), first, count)));
      }
      for (const SequenceId id : ids) {  // views last: a later write would end them
        SIGHTLINE_TRY(KvView view, copy.cache.view(id, 0));
        copy.views.push_back(view);
      }
      cache_bytes_ = copy.cache.stats().bytes_used;
      bytes += at(cache_bytes_);
      copies_.push_back(std::move(copy));
    } while (bytes < target);
    round_to(case_.cache->type, k_);
    round_to(case_.cache->type, v_);
    return {};
  }

  template <typename T>
  static StridedView<T, 3> slice(StridedView<T, 3> rows, std::int64_t first, std::int64_t count) {
    rows.data += first * rows.strides[0];
    rows.shape[0] = count;
    return rows;
  }

  [[nodiscard]] std::int64_t num_q() const { return q_offsets_.back(); }
  [[nodiscard]] std::int64_t num_kv() const { return kv_offsets_.back(); }
  [[nodiscard]] QueryBatch queries() const { return {q_offsets_, q_coords_, {}}; }
  [[nodiscard]] StridedView<const float, 3> queries_view() const {
    return dense_view<const float, 3>(q_.data(),
                                      {num_q(), case_.spec.heads.num_q_heads, case_.spec.heads.qk_head_dim});
  }
  [[nodiscard]] StridedView<const float, 3> keys() const {
    return dense_view<const float, 3>(
        k_.data(), {num_kv(), case_.spec.heads.num_kv_heads, case_.spec.heads.qk_head_dim});
  }
  [[nodiscard]] StridedView<const float, 3> values() const {
    return dense_view<const float, 3>(v_.data(),
                                      {num_kv(), case_.spec.heads.num_kv_heads, case_.spec.heads.v_head_dim});
  }
  [[nodiscard]] StridedView<float, 3> out() {
    return dense_view<float, 3>(out_.data(),
                                {num_q(), case_.spec.heads.num_q_heads, case_.spec.heads.v_head_dim});
  }
  [[nodiscard]] ContiguousKv contiguous() const {
    ContiguousKv kv;
    kv.kv_offsets = kv_offsets_;
    kv.coords = kv_coords_;
    kv.k = keys();
    kv.v = values();
    return kv;
  }

  [[nodiscard]] Result<AttentionPlan> make_plan() const {
    if (case_.cache) return plan_attention(case_.spec, queries(), PagedKv{copies_.front().views}, extras_);
    return plan_attention(case_.spec, queries(), contiguous(), extras_);
  }

  [[nodiscard]] Result<void> forward() {
    if (!case_.cache) {
      return attention_forward(case_.spec, *plan_, queries_view(), queries(), contiguous(), extras_, out(),
                               {}, context_);
    }
    const PagedKv kv{copies_[next_copy_].views};
    next_copy_ = (next_copy_ + 1) % copies_.size();
    return attention_forward(case_.spec, *plan_, queries_view(), queries(), kv, extras_, out(), {}, context_);
  }

  const Bench* bench_;
  AttentionCase case_;
  std::vector<float> q_, k_, v_, out_;
  std::vector<TokenCoord> q_coords_, kv_coords_;
  std::vector<std::int64_t> q_offsets_, kv_offsets_;
  MaskTables tables_;
  AttentionExtras extras_;
  std::vector<Copy> copies_;
  std::size_t next_copy_ = 0;
  std::int64_t cache_bytes_ = 0;
  std::optional<AttentionPlan> plan_;
  AttentionContext context_;
};

AttentionBody::AttentionBody(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionBody::~AttentionBody() = default;

Result<std::unique_ptr<AttentionBody>> AttentionBody::make(const Bench& bench, AttentionCase c) {
  auto impl = std::make_unique<Impl>(bench, std::move(c));
  if (impl->case_.cache) SIGHTLINE_CHECK(impl->fill_caches());
  SIGHTLINE_TRY(AttentionPlan plan, impl->make_plan());
  impl->plan_ = std::move(plan);
  SIGHTLINE_CHECK(impl->forward());
  return std::unique_ptr<AttentionBody>(new AttentionBody(std::move(impl)));
}

void AttentionBody::run() { static_cast<void>(impl_->forward()); }
void AttentionBody::plan() const { static_cast<void>(impl_->make_plan()); }
const AttentionCase& AttentionBody::get_case() const { return impl_->case_; }
CaseViews AttentionBody::views() {
  return {impl_->queries(),      impl_->contiguous(), &impl_->extras_, &*impl_->plan_,
          impl_->queries_view(), impl_->out(),        impl_->tables_};
}
AttentionContext& AttentionBody::context() { return impl_->context_; }
std::int64_t AttentionBody::pairs_visible() const { return impl_->context_.stats().pairs_visible; }
std::int64_t AttentionBody::pairs_computed() const { return impl_->context_.stats().pairs_computed; }
std::int64_t AttentionBody::cache_bytes() const { return impl_->cache_bytes_; }
int AttentionBody::num_copies() const { return static_cast<int>(impl_->copies_.size()); }

double AttentionBody::work() const {
  const HeadSpec& heads = impl_->case_.spec.heads;
  return 2.0 * static_cast<double>(pairs_visible()) * (heads.qk_head_dim + heads.v_head_dim);
}

double AttentionBody::density() const {
  double pairs = 0.0;
  for (const CaseSequence& s : impl_->case_.sequences) pairs += static_cast<double>(s.num_q * s.num_kv);
  return static_cast<double>(pairs_visible()) / (pairs * impl_->case_.spec.heads.num_q_heads);
}

std::string AttentionBody::what() const {
  const AttentionCase& c = impl_->case_;
  const HeadSpec& heads = c.spec.heads;
  std::string text = fmt::format("{} queries, {} keys, ", impl_->num_q(), impl_->num_kv());
  if (c.sequences.size() > 1) text += fmt::format("{} sequences, ", c.sequences.size());
  text += heads.num_q_heads == heads.num_kv_heads
              ? fmt::format("{} heads", heads.num_q_heads)
              : fmt::format("{}/{} heads", heads.num_q_heads, heads.num_kv_heads);
  text += fmt::format(" of {}, {}", heads.qk_head_dim, to_string(c.spec.mask));
  if (c.cache) text += c.cache->type == StorageType::kBf16 ? ", bf16 pages of 64" : ", f32 pages of 64";
  return text;
}

Result<std::string> AttentionBody::check() {
  Impl& in = *impl_;
  SIGHTLINE_CHECK(in.forward());
  const HeadSpec& heads = in.case_.spec.heads;
  const auto num_sequences = static_cast<int>(in.case_.sequences.size());
  const bool is_big = heads.num_q_heads * in.num_kv() > 100000;
  const int samples = num_sequences > 1 ? 1 : (is_big ? 2 : 8);
  CheckedError error;
  for (int s = 0; s < num_sequences; ++s) {
    const CaseSequence& sequence = in.case_.sequences[at(s)];
    const std::int64_t q = in.q_offsets_[at(s)];
    const std::int64_t kv = in.kv_offsets_[at(s)];
    SequenceResult result;
    result.spec = &in.case_.spec;
    result.tables = in.tables_;
    result.q_coords = std::span(in.q_coords_).subspan(at(q), at(sequence.num_q));
    result.kv_coords = std::span(in.kv_coords_).subspan(at(kv), at(sequence.num_kv));
    result.q = Impl::slice(in.queries_view(), q, sequence.num_q);
    result.k = Impl::slice(in.keys(), kv, sequence.num_kv);
    result.v = Impl::slice(in.values(), kv, sequence.num_kv);
    result.out = Impl::slice(StridedView<const float, 3>(in.out()), q, sequence.num_q);
    SIGHTLINE_CHECK(check_rows(result, samples, error));
  }
  if (!error.holds(2.0)) {
    return fail(ErrorKind::kInternal, "bench: {}: scaled error {} against the oracle, plain method {}",
                in.case_.name, error.ours, error.plain);
  }
  return error.note();
}

Result<Row> checked_row(AttentionBody& body, Limit limit, std::string_view more) {
  Row row;
  row.name = body.get_case().name;
  row.what = body.what();
  if (!more.empty()) row.what += fmt::format("; {}", more);
  row.limit = limit;
  SIGHTLINE_TRY(row.note, body.check());
  return row;
}

Result<void> run_attention_case(const Bench& bench, const AttentionCase& c) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body, AttentionBody::make(bench, c));
  SIGHTLINE_TRY(Row row, checked_row(*body, Limit::kPeak));
  row.work = body->work();
  measure(bench, row, [&] { body->run(); });
  return {};
}

Result<void> run_attention_pair(const Bench& bench, const AttentionPair& pair) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body, AttentionBody::make(bench, pair.c));
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> reference, AttentionBody::make(bench, pair.reference));
  SIGHTLINE_TRY(Row row, checked_row(*body, Limit::kReference, pair.what));
  row.work = body->work();
  row.is_speed = pair.is_speed;
  row.share = pair.share > 0.0 ? pair.share : body->work() / reference->work();
  measure_against(bench, row, [&] { body->run(); }, [&] { reference->run(); });
  return {};
}

}  // namespace sightline::bench
