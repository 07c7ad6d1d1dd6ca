// Bytes as a small attention call: the engine against the float64 oracle by the error rule, and to the bit
// against itself in other threads, pages, orders, chunks, and beside numbers that a query does not see.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention_case.h"
#include "fuzz_gtest.h"
#include "fuzz_input.h"
#include "sightline/base/half.h"

namespace sightline {
namespace {

using test::Batch;
using test::Output;
using test::RunOptions;
using test::same_bits;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Check {
 public:
  Check(FuzzInput& in, const AttentionCase& the_case)
      : case_(the_case), batch_(the_case.batch()), rng_(in.bits(2)) {
    options_ = {in.pick(kernels::available_tables()), 1};
    whole_ = run_contiguous(batch_, options_);
  }

  // The rule compares the largest of many errors. Where a call is so small that the plain method's are nil by
  // luck, the same call on more numbers decides.
  void error_rule() const {
    if (within_error_rule(batch_, whole_)) return;
    const std::int64_t entries = std::max<std::int64_t>(1, std::ssize(whole_.out));
    const Batch more = case_.batch(static_cast<int>(std::clamp<std::int64_t>(20'000 / entries, 8, 200)));
    EXPECT_TRUE(within_error_rule(more, run_contiguous(more, options_)) << describe(case_.spec));
  }

  void threads() const { same(run_contiguous(batch_, {options_.table, 3})); }

  void stated_ordinals() const {
    Batch stated = batch_;
    stated.ordinals.clear();
    for (const CaseSequence& s : case_.sequences) {
      stated.ordinals.insert(stated.ordinals.end(), s.ordinals.begin(), s.ordinals.end());
    }
    same(run_contiguous(stated, options_));
  }

  // Slots in storage order, so the ordinals are those ranks. Columns of tables and bias are rows of the call,
  // which padding would move.
  void pages(int page_size) const {
    Batch by_row = batch_;
    if ((case_.uses_tables() || case_.has_bias) && case_.has_invalid_keys()) return;
    by_row.ordinals.clear();
    const Output paged = run_paged(by_row, {.page_size = page_size}, options_);
    for (const CaseSequence& s : case_.sequences) {
      const auto ranks = rank_keys(case_.spec.mask, s.kv, false);
      by_row.ordinals.insert(by_row.ordinals.end(), ranks.begin(), ranks.end());
    }
    same(run_contiguous(by_row, options_), paged);
    if (case_.spec.rope.pairing != RopePairing::kNone &&
        case_.spec.rope.cache_stage == CacheStage::kAfterRotation) {
      by_row.spec.rope.cache_stage = CacheStage::kBeforeRotation;
      by_row.ordinals.clear();
      same(paged, run_paged(by_row, {.page_size = page_size}, options_));
    }
  }

  void bf16_pages(int page_size) const {
    Batch batch = batch_;
    if ((case_.uses_tables() || case_.has_bias) && case_.has_invalid_keys()) return;
    batch.ordinals.clear();
    batch.spec.rope.cache_stage = CacheStage::kBeforeRotation;
    const StorageType bf16 = StorageType::kBf16;
    const Output stored =
        run_paged(batch, {.page_size = page_size, .key_type = bf16, .value_type = bf16}, options_);
    for (auto* values : {&batch.k, &batch.v}) {
      for (float& x : *values) x = to_f32(to_bf16(x));
    }
    same(run_paged(batch, {.page_size = page_size}, options_), stored);
  }

  // Some queries of a sequence, in any order, against what they see and some of the rest, in any order: a
  // chunk, a decode step, a row alone, keys that were evicted.
  void chunk() {
    const std::size_t s = rng_.next_below(case_.sequences.size());
    const CaseSequence& sequence = case_.sequences[s];
    std::vector<std::int64_t> q_rows = shuffled(sequence.q.size());
    q_rows.resize(1 + rng_.next_below(q_rows.size()));
    if (rng_.next_below(2) == 0) std::ranges::sort(q_rows);
    std::vector<std::int64_t> kv_rows = shuffled(sequence.kv.size());
    std::erase_if(kv_rows, [&](std::int64_t k) {
      const bool is_seen = std::ranges::any_of(q_rows, [&](std::int64_t q) { return sees(s, q, k); });
      return !is_seen && rng_.next_below(2) == 0;
    });
    if (rng_.next_below(2) == 0) std::ranges::sort(kv_rows);
    std::vector<std::uint8_t> dense;
    std::vector<std::int32_t> nodes;
    const Batch part = select(case_, batch_, s, q_rows, kv_rows, dense, nodes);
    const Output got = run_contiguous(part, options_);
    for (std::size_t i = 0; i < q_rows.size(); ++i) {
      const std::int64_t row = batch_.q_offsets[s] + q_rows[i];
      EXPECT_TRUE(same_bits(whole_.row(batch_, row), got.row(part, static_cast<std::int64_t>(i))));
    }
  }

  // A key or value that is not finite changes no row but those that see it.
  void unseen_numbers() {
    const std::size_t s = rng_.next_below(case_.sequences.size());
    const CaseSequence& sequence = case_.sequences[s];
    if (sequence.kv.empty()) return;
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float numbers[] = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf};
    const HeadSpec& heads = case_.spec.heads;
    const auto key = static_cast<std::int64_t>(rng_.next_below(sequence.kv.size()));
    const auto head = static_cast<int>(rng_.next_below(static_cast<std::uint64_t>(heads.num_kv_heads)));
    Batch batch = batch_;
    const bool in_keys = rng_.next_below(2) == 0;
    const int width = in_keys ? heads.qk_head_dim : heads.v_head_dim;
    const std::int64_t begin = ((batch.kv_offsets[s] + key) * heads.num_kv_heads + head) * width;
    (in_keys ? batch.k : batch.v)[at(begin) + rng_.next_below(static_cast<std::uint64_t>(width))] =
        numbers[rng_.next_below(3)];
    const Output got = run_contiguous(batch, options_);
    for (std::int64_t row = 0; row < batch.num_q(); ++row) {
      const bool is_own = row >= batch.q_offsets[s] && row < batch.q_offsets[s + 1];
      for (int h = 0; h < heads.num_q_heads; ++h) {
        if (is_own && kv_head_for(heads, h) == head && sees(s, row - batch.q_offsets[s], key, h)) continue;
        EXPECT_TRUE(same_bits(head_of(whole_, row, h), head_of(got, row, h)));
      }
    }
  }

 private:
  void same(const Output& got) const { same(whole_, got); }
  static void same(const Output& a, const Output& b) {
    EXPECT_TRUE(same_bits(a.out, b.out));
    EXPECT_TRUE(same_bits(a.lse, b.lse));
  }

  [[nodiscard]] bool sees(std::size_t s, std::int64_t q, std::int64_t k) const {
    const CaseSequence& sequence = case_.sequences[s];
    const MaskTables tables = sequence.tables->view();
    return is_visible(case_.spec.mask, tables, {sequence.q[at(q)], q}, {sequence.kv[at(k)], k});
  }
  [[nodiscard]] bool sees(std::size_t s, std::int64_t q, std::int64_t k, int head) const {
    const std::int64_t bias_row = head * batch_.num_q() + batch_.q_offsets[s] + q;
    if (!batch_.bias.empty() && std::isinf(batch_.bias[at(bias_row * batch_.max_kv() + k)])) return false;
    return sees(s, q, k);
  }

  [[nodiscard]] std::vector<float> head_of(const Output& from, std::int64_t row, int head) const {
    const HeadSpec& heads = case_.spec.heads;
    const std::int64_t begin = (row * heads.num_q_heads + head) * heads.v_head_dim;
    std::vector<float> out(from.out.begin() + begin, from.out.begin() + begin + heads.v_head_dim);
    out.push_back(from.lse[at(row * heads.num_q_heads + head)]);
    return out;
  }

  std::vector<std::int64_t> shuffled(std::size_t count) {
    std::vector<std::int64_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    for (std::size_t i = 1; i < count; ++i) std::swap(rows[i], rows[rng_.next_below(i + 1)]);
    return rows;
  }

  const AttentionCase& case_;
  Batch batch_;
  Rng rng_;
  RunOptions options_;
  Output whole_;
};

void run(FuzzInput& in) {
  constexpr std::array kPageSizes{16, 32, 48, 64, 128, 256};
  const std::uint8_t checks = in.byte();
  const AttentionCase the_case = read_case(in);
  Check check(in, the_case);
  check.error_rule();
  if ((checks & 1) != 0) check.threads();
  if ((checks & 2) != 0) check.stated_ordinals();
  if ((checks & 4) != 0) check.pages(in.pick(kPageSizes));
  if ((checks & 8) != 0) check.bf16_pages(in.pick(kPageSizes));
  if ((checks & 16) != 0) check.unseen_numbers();
  check.chunk();
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  FuzzInput in(data, size);
  fuzz_with_expectations([&] { run(in); });
  return 0;
}
