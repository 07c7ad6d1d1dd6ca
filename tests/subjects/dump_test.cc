#include "sightline/subjects/dump/dump.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <limits>

#include "reference/random_call.h"
#include "sightline/base/half.h"
#include "sightline/checker/diagnose.h"
#include "sightline/faults/fault_table.h"
#include "sightline/formats/npy.h"
#include "sightline/formats/safetensors.h"

namespace sightline::subjects {
namespace {

namespace fs = std::filesystem;
using checker::Verdict;
using reference::RandomCall;

class DumpTest : public testing::Test {
 protected:
  DumpTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::path(testing::TempDir()) / ("sightline_dump_" + name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~DumpTest() override { fs::remove_all(folder_); }

  fs::path write(const NpzArrays& arrays) const {
    const fs::path path = folder_ / "dump.npz";
    EXPECT_TRUE(write_npz(path, arrays, true));
    return path;
  }

  fs::path folder_;
};

AttentionSpec declared(const char* mask = "causal") { return reference::small_spec(mask, {4, 2, 6, 5}); }

// A call with its answer: 12 queries at the end of 16 keys.
struct Answered {
  RandomCall call;
  std::vector<double> out;

  explicit Answered(const AttentionSpec& spec, std::int64_t q_begin = 4, std::int64_t kv_len = 16)
      : call(spec, q_begin, kv_len, 7) {
    for (auto* x : {&call.q, &call.k, &call.v}) {
      for (double& y : *x) y = static_cast<float>(y);
    }
    out = call.forward().out;
    for (double& y : out) y = static_cast<float>(y);
  }
};

// [tokens, heads, dim] to [heads, tokens, dim].
std::vector<double> heads_first(const std::vector<double>& x, std::int64_t tokens, std::int64_t heads) {
  const std::int64_t dim = static_cast<std::int64_t>(x.size()) / (tokens * heads);
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t d = 0; d < dim; ++d) {
        out.push_back(x[static_cast<std::size_t>((t * heads + h) * dim + d)]);
      }
    }
  }
  return out;
}

NpyArray array(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  const std::vector<float> narrow(values.begin(), values.end());
  return npy_array(std::span<const float>(narrow), std::move(shape)).value();
}

NpzArrays tokens_first(const Answered& a) {
  return {{"q", array(a.call.q, {a.call.q_len(), 4, 6})},
          {"k", array(a.call.k, {a.call.kv_len(), 2, 6})},
          {"v", array(a.call.v, {a.call.kv_len(), 2, 5})},
          {"out", array(a.out, {a.call.q_len(), 4, 5})}};
}

std::string message(const fs::path& path, const DumpOptions& options) {
  const Result<Dump> dump = read_dump(path);
  if (!dump) return dump.error().message;
  const Result<DumpContent> content = read_observations(*dump, options);
  return content ? "" : content.error().message;
}

Verdict verdict(const fs::path& path, const DumpOptions& options) {
  return checker::diagnose(read_observations(read_dump(path).value(), options).value().observations)
      .value()
      .verdict;
}

TEST_F(DumpTest, TokensFirstAndHeadsFirstAndMergedHeadsAreTheSameObservation) {
  const Answered a(declared());
  DumpOptions options;
  options.spec = declared();
  EXPECT_EQ(verdict(write(tokens_first(a)), options), Verdict::kAgrees);
  const NpzArrays torch_like = {{"query_states", array(heads_first(a.call.q, 12, 4), {1, 4, 12, 6})},
                                {"key_states", array(heads_first(a.call.k, 16, 2), {1, 2, 16, 6})},
                                {"value_states", array(heads_first(a.call.v, 16, 2), {1, 2, 16, 5})},
                                {"attn_output", array(a.out, {1, 12, 20})}};
  const fs::path path = write(torch_like);
  EXPECT_EQ(verdict(path, options), Verdict::kAgrees);
  const DumpContent content = read_observations(read_dump(path).value(), options).value();
  EXPECT_EQ(content.assumptions.at(0), "q is query_states");
  // A folder of .npy and a safetensors file hold the same.
  const fs::path npys = folder_ / "npys";
  fs::create_directories(npys);
  for (const auto& [name, x] : tokens_first(a)) {
    ASSERT_TRUE(write_npy(npys / (name + ".npy"), x, true));
  }
  EXPECT_EQ(verdict(npys, options), Verdict::kAgrees);
  std::vector<TensorDecl> tensors;
  for (const auto& [name, x] : tokens_first(a)) tensors.push_back({name, x.type, x.shape});
  const fs::path file = folder_ / "dump.safetensors";
  TensorWriter writer = create_safetensors(file, tensors, {}, true).value();
  for (const auto& [name, x] : tokens_first(a)) ASSERT_TRUE(writer.append_bytes(x.bytes));
  ASSERT_TRUE(writer.commit());
  EXPECT_EQ(verdict(file, options), Verdict::kAgrees);
}

TEST_F(DumpTest, TransposedArraysAreNotTheSameObservation) {
  const Answered a(declared());
  DumpOptions options;
  options.spec = declared();
  NpzArrays arrays = tokens_first(a);
  arrays[3].second = array(heads_first(a.out, 12, 4), {12, 4, 5});
  EXPECT_NE(exit_code(verdict(write(arrays), options)), 0);
}

TEST_F(DumpTest, BatchRowsPositionsPaddingAndDocumentsAreRead) {
  AttentionSpec spec = declared("causal & segment");
  RandomCall call(spec, 0, 8, 3);
  for (std::size_t i = 0; i < 8; ++i) {
    TokenCoord coord;
    coord.valid = i >= 2;
    coord.pos = i >= 2 ? static_cast<std::int64_t>(i) - 2 : 0;  // padding takes none
    coord.segment = i < 5 ? 0 : 1;
    coord.segment_start = i < 5 ? 0 : 3;
    call.q_coords[i] = call.kv_coords[i] = coord;
  }
  const std::vector<double> out = call.forward().out;
  const auto integers = [](std::vector<double> x) {
    const auto size = static_cast<std::int64_t>(x.size());
    return npy_array(std::span<const double>(x), {size}).value();
  };
  const fs::path path = write({{"q", array(call.q, {1, 8, 4, 6})},
                               {"k", array(call.k, {1, 8, 2, 6})},
                               {"v", array(call.v, {1, 8, 2, 5})},
                               {"out", array(out, {1, 8, 4, 5})},
                               {"attention_mask", integers({0, 0, 1, 1, 1, 1, 1, 1})},
                               {"segment_ids", integers({0, 0, 0, 0, 0, 1, 1, 1})}});
  DumpOptions options;
  options.spec = spec;
  options.type = checker::ElementType::kF32;
  options.axes = "bthd";
  const DumpContent content = read_observations(read_dump(path).value(), options).value();
  EXPECT_EQ(content.observations.at(0).kv_coords, call.kv_coords);
  EXPECT_EQ(verdict(path, options), Verdict::kAgrees);
}

TEST_F(DumpTest, ADraftTreeIsReadAndOnlyAParentBeforeItsChild) {
  AttentionSpec spec = declared("causal & tree");
  RandomCall call(spec, 4, 16, 7);
  const std::vector<std::int32_t> parents = {-1, 0, 0, 1};
  const std::vector<double> pos = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14};
  std::vector<std::int32_t> nodes(12, -1);
  nodes.insert(nodes.end(), {0, 1, 2, 3});
  for (std::size_t i = 0; i < 16; ++i) call.kv_coords[i].pos = static_cast<std::int64_t>(pos[i]);
  std::copy(call.kv_coords.begin() + 4, call.kv_coords.end(), call.q_coords.begin());
  call.tables.kv_node = nodes;
  call.tables.q_node = std::span(nodes).subspan(4);
  call.tables.parent = parents;
  const auto numbers = [](const std::vector<double>& x) {
    return npy_array(std::span<const double>(x), {std::ssize(x)}).value();
  };
  NpzArrays arrays = {{"q", array(call.q, {12, 4, 6})},
                      {"k", array(call.k, {16, 2, 6})},
                      {"v", array(call.v, {16, 2, 5})},
                      {"out", array(call.forward().out, {12, 4, 5})},
                      {"kv_pos", numbers(pos)},
                      {"q_pos", numbers({pos.begin() + 4, pos.end()})},
                      {"tree_parents", numbers({-1, 0, 0, 1})}};
  DumpOptions options;
  options.spec = spec;
  options.type = checker::ElementType::kF32;
  EXPECT_EQ(exit_code(verdict(write(arrays), options)), 0);
  arrays.back().second = numbers({-1, 0, 0, 0});  // another tree than was verified
  EXPECT_EQ(exit_code(verdict(write(arrays), options)), 1);
  arrays.back().second = numbers({-1, 4294967295.0});
  EXPECT_NE(message(write(arrays), options).find("draft_parents[1] = 4294967295, expected -1 to 0"),
            std::string::npos);
  arrays.pop_back();
  EXPECT_NE(exit_code(verdict(write(arrays), options)), 0);  // every token is committed
}

TEST_F(DumpTest, ABooleanMaskHidesAndAMaskOfNumbersIsRefused) {
  const Answered a(declared());
  NpzArrays arrays = tokens_first(a);
  std::vector<std::byte> bits;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 16; ++j) bits.push_back(static_cast<std::byte>(j <= i + 4 ? 1 : 0));
  }
  arrays.emplace_back("attn_mask", NpyArray{DataType::kBool, {12, 16}, bits});
  DumpOptions options;
  options.spec = declared("all");
  EXPECT_EQ(verdict(write(arrays), options), Verdict::kAgrees);
  arrays.back().second = array(std::vector<double>(12 * 16, 0.0), {12, 16});
  EXPECT_NE(message(write(arrays), options).find("expected booleans"), std::string::npos);
}

TEST_F(DumpTest, AFaultInADumpIsNamed) {
  Answered a(declared());
  const Fault fault = parse_fault("head.gqa_mapping").value();
  reference::Deviation deviation;
  ASSERT_TRUE(plant(fault, a.call.spec, deviation));
  a.out = a.call.forward({}, deviation).out;
  DumpOptions options;
  options.spec = declared();
  const checker::Report report =
      checker::diagnose(
          read_observations(read_dump(write(tokens_first(a))).value(), options).value().observations)
          .value();
  EXPECT_EQ(report.faults.at(0).slug, "head.gqa_mapping");
}

TEST_F(DumpTest, NumbersOfHalfTypesInWideArraysAreJudgedAsHalf) {
  Answered a(declared());
  for (double& x : a.out) x = to_f32(to_bf16(static_cast<float>(x)));
  DumpOptions options;
  options.spec = declared();
  EXPECT_EQ(verdict(write(tokens_first(a)), options), Verdict::kRounding);
}

TEST_F(DumpTest, WideOutputsOfNarrowInputsAreJudgedAsF32) {
  const Answered a(declared());
  NpzArrays arrays = tokens_first(a);
  std::vector<double> wide = a.out;
  for (double& x : wide) x *= 1.0 + 1e-8;  // beyond f64's rounding, within f32's
  arrays[3].second = npy_array(std::span<const double>(wide), {12, 4, 5}).value();
  DumpOptions options;
  options.spec = declared();
  EXPECT_EQ(verdict(write(arrays), options), Verdict::kAgrees);
  options.type = checker::ElementType::kF64;
  EXPECT_NE(exit_code(verdict(write(arrays), options)), 0);
}

TEST_F(DumpTest, WhatIsMissingOrDoesNotFitIsSaidInOneLineWithNames) {
  const Answered a(declared());
  DumpOptions options;
  options.spec = declared();
  NpzArrays arrays = tokens_first(a);
  arrays[1].first = "kk";
  EXPECT_NE(message(write(arrays), options).find("no array k; there are: q, kk, v, out"), std::string::npos);
  options.names = {{"k", "kk"}};
  EXPECT_EQ(message(write(arrays), options), "");
  options.names = {{"k", "k2"}};
  EXPECT_NE(message(write(arrays), options).find("no array k2, which was named as k"), std::string::npos);
  options.names = {};
  arrays = tokens_first(a);
  arrays[2].second = array(std::vector<double>(15 * 2 * 5), {15, 2, 5});
  const std::string text = message(write(arrays), options);
  EXPECT_NE(text.find("shapes do not agree: q [12, 4, 6], k [16, 2, 6], v [15, 2, 5]"), std::string::npos)
      << text;
  arrays = tokens_first(a);
  arrays.pop_back();
  EXPECT_NE(message(write(arrays), options).find("nothing was observed"), std::string::npos);
  arrays = tokens_first(a);
  arrays.emplace_back("q_pos", array(std::vector<double>(12, 0.5), {12}));
  EXPECT_NE(message(write(arrays), options).find("expected an integer"), std::string::npos);
  EXPECT_NE(message(folder_ / "none.npz", options).find("no such file"), std::string::npos);
  const fs::path pickle = folder_ / "dump.pt";
  std::ofstream(pickle) << "x";
  EXPECT_NE(message(pickle, options).find("a pickle, which would run code"), std::string::npos);
  fs::create_directories(folder_ / "empty");
  EXPECT_NE(message(folder_ / "empty", options).find("no .npy files"), std::string::npos);
}

TEST_F(DumpTest, HeadsAndTokensOfOneSizeHaveToBeTold) {
  AttentionSpec spec = reference::small_spec("causal", {6, 6, 4, 4});
  const RandomCall call(spec, 0, 6, 5);
  const fs::path path = write({{"q", array(call.q, {6, 6, 4})},
                               {"k", array(call.k, {6, 6, 4})},
                               {"v", array(call.v, {6, 6, 4})},
                               {"out", array(call.forward().out, {6, 6, 4})}});
  DumpOptions options;
  options.spec = spec;
  EXPECT_NE(message(path, options).find("cannot be told apart by size"), std::string::npos)
      << message(path, options);
  options.axes = "thd";
  EXPECT_EQ(verdict(path, options), Verdict::kAgrees);
  options.axes = "htd";
  EXPECT_NE(exit_code(verdict(path, options)), 0);
}

}  // namespace
}  // namespace sightline::subjects
