#include "sightline/faults/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace sightline {
namespace {

// The kinds as the catalogue of reports names them, in its order.
constexpr std::string_view kKinds[] = {
    "mask.top_left_alignment", "mask.causal_dropped", "mask.composition", "mask.polarity_or_kind",
    "mask.padding_ignored", "mask.fully_masked_row", "mask.fill_value", "mask.window_off_by_one",
    "mask.window_scope", "mask.stale_or_misbound", "mask.prefix_bidirectional", "mask.chunked_local",
    "mask.tree_speculative",
    //
    "cache.ring_wrap", "cache.valid_length", "cache.position_offset", "cache.shift_rerotation",
    "cache.rollback", "cache.prefix_identity", "cache.beam_reorder", "cache.quant_scale",
    "cache.gqa_expansion",
    //
    "rope.pairing", "rope.partial_dim", "rope.base", "rope.per_layer", "rope.scaling_missing",
    "rope.yarn_magnitude", "rope.cached_keys_rescaled", "rope.low_precision", "rope.table_bounds",
    "rope.batch_row", "pos.left_padding", "alibi.bias",
    //
    "head.gqa_mapping", "head.fused_qkv_layout", "head.merge_transpose", "head.dim_explicit", "head.qk_norm",
    //
    "score.scale", "score.softcap", "score.sink", "score.softmax_precision", "score.lse_base",
    //
    "loss.label_shift", "loss.normalisation", "loss.scope", "pack.cross_document", "pack.position_reset",
    //
    "grad.delta_term", "grad.gqa_reduction", "grad.mask_mismatch", "grad.nondeterminism",
    "grad.dropout_replay", "grad.unwritten", "grad.severed", "grad.check_misuse",
    //
    "batch.reduction_order", "batch.kernel_indexing"};

bool has_row(std::string_view slug) {
  return std::ranges::any_of(fault_table(), [&](const FaultKind& kind) { return kind.slug == slug; });
}

TEST(FaultCatalogueTest, HoldsEveryKindOnceInOrder) {
  std::vector<std::string_view> slugs;
  for (const CatalogueEntry& entry : fault_catalogue()) slugs.push_back(entry.slug);
  EXPECT_TRUE(std::ranges::equal(slugs, kKinds)) << slugs.size() << " of " << std::size(kKinds);
}

TEST(FaultCatalogueTest, ItsKindsAreThoseOfTheReports) {
  const char* data = std::getenv("SIGHTLINE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "SIGHTLINE_TEST_DATA is not set";
  std::ifstream file(std::filesystem::path(data) / ".." / "reference" / "faults.md");
  if (!file) GTEST_SKIP() << "no faults.md beside the test data";
  // Rows of the first section's tables begin with a slug in backticks.
  std::vector<std::string> slugs;
  std::string line;
  while (std::getline(file, line) && !line.starts_with("## 2")) {
    if (!line.starts_with("| `")) continue;
    slugs.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_TRUE(std::ranges::equal(slugs, kKinds)) << slugs.size() << " of " << std::size(kKinds);
}

TEST(FaultCatalogueTest, EveryEntryIsCompleteAndInSingleLines) {
  for (const CatalogueEntry& entry : fault_catalogue()) {
    for (const std::string_view text : {entry.what, entry.where, entry.idiom, entry.fix}) {
      EXPECT_GE(text.size(), 15U) << entry.slug;
      EXPECT_LE(text.size(), 120U) << entry.slug << ": " << text;
      EXPECT_EQ(text.find('\n'), std::string_view::npos) << entry.slug;
      EXPECT_NE(text.back(), '.') << entry.slug;
    }
    EXPECT_EQ(find_in_catalogue(entry.slug), &entry);
  }
  EXPECT_EQ(find_in_catalogue("mask.nothing"), nullptr);
}

TEST(FaultCatalogueTest, NeighboursAreKindsAndAreTakenForEachOther) {
  for (const CatalogueEntry& entry : fault_catalogue()) {
    std::set<std::string_view> seen;
    for (const std::string_view neighbour : entry.neighbours) {
      EXPECT_TRUE(seen.insert(neighbour).second) << entry.slug << " names " << neighbour << " twice";
      EXPECT_NE(neighbour, entry.slug);
      const CatalogueEntry* other = find_in_catalogue(neighbour);
      ASSERT_NE(other, nullptr) << entry.slug << " has neighbour " << neighbour;
      EXPECT_EQ(std::ranges::count(other->neighbours, entry.slug), 1)
          << neighbour << " does not name " << entry.slug;
    }
  }
}

TEST(FaultCatalogueTest, RowsPlantKindsOfItAndAllThatShowInOutputsOrSayWhyNot) {
  for (const FaultKind& kind : fault_table()) {
    const CatalogueEntry* entry = find_in_catalogue(kind.slug);
    ASSERT_NE(entry, nullptr) << kind.slug;
    EXPECT_EQ(entry->group, kind.group) << kind.slug;
    EXPECT_NE(entry->shows_in, ShowsIn::kNowhere) << kind.slug;
  }
  for (const CatalogueEntry& entry : fault_catalogue()) {
    const bool must = entry.shows_in == ShowsIn::kOutputs;
    EXPECT_EQ(entry.not_planted.empty(), !must || has_row(entry.slug)) << entry.slug;
  }
}

}  // namespace
}  // namespace sightline
