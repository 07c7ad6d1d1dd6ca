// Faults that a changed spec or changed coordinates express, planted in our own engine: its float32 answers
// are named as the oracle's are, and right ones raise no alarm. Scenes are drawn at random, in sizes under
// which faults show.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <numeric>

#include "checker/faulted_calls.h"
#include "checker/random_scene.h"
#include "checker/search.h"
#include "sightline/checker/diagnose.h"
#include "sightline/subjects/engine/engine_subject.h"
#include "support/sanitizers.h"

namespace sightline::subjects {
namespace {

using checker::Observation;

std::vector<double> dense(const StridedView<const double, 3>& view) {
  return {view.data, view.data + view.size()};
}

// Fills `out` and `lse` of a whole observation with what the engine answers call by call. False: the faults
// are none of spec and coordinates, or of a rotation that changes between calls, or change nothing here.
bool answer(checker::Subject& engine, Observation& o, std::span<const Fault> faults) {
  o.out.clear();
  o.lse.clear();
  const Result<checker::Faulted> faulted = checker::plant_all(o, faults);
  if (!faulted || !(faulted->deviation == reference::Deviation{}) || faulted->rearranged) return false;
  for (const checker::FaultedCall& planted : faulted->calls.all()) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(planted.q_end - planted.q_begin));
    std::iota(rows.begin(), rows.end(), planted.q_begin);
    const checker::CallInputs inputs(o, faulted->spec, checker::arrays_of(o, *faulted), faulted->calls,
                                     planted, rows);
    const reference::AttentionInputs& in = inputs.get();
    if (!in.kv_rope_length.empty()) return false;
    Observation call;
    call.spec = faulted->spec;
    call.type = checker::ElementType::kF32;
    call.q = dense(in.q);
    call.k = dense(in.k);
    call.v = dense(in.v);
    call.q_coords.assign(in.q_coords.begin(), in.q_coords.end());
    call.kv_coords.assign(in.kv_coords.begin(), in.kv_coords.end());
    call.q_rope_pos.assign(in.q_rope_pos.begin(), in.q_rope_pos.end());
    call.kv_rope_pos.assign(in.kv_rope_pos.begin(), in.kv_rope_pos.end());
    call.rope_length = in.rope_length;
    if (in.bias.data != nullptr) call.bias = dense(in.bias);
    if (!engine.answer(call)) return false;
    o.out.insert(o.out.end(), call.out.begin(), call.out.end());
    o.lse.insert(o.lse.end(), call.lse.begin(), call.lse.end());
  }
  return true;
}

// Two observations of a scene, in float32.
std::vector<Observation> questions(checker::RandomScene& scene) {
  std::vector<Observation> seen{scene.observation(), scene.observation()};
  for (Observation& o : seen) {
    o.type = checker::ElementType::kF32;
    o.d_out.clear();
  }
  return seen;
}

// Faults of a cache need calls that find something in it.
bool can_plant(const FaultKind& kind, const Observation& o) {
  return kind.group != FaultGroup::kCacheSlot || o.kv_len() > o.q_len() || o.call_begins.size() > 1;
}

TEST(EngineFaultsTest, WhatTheEngineCanExpressIsNamedFirst) {
  const auto num_scenes = static_cast<int>(
      checker::confusion_setting("SIGHTLINE_CONFUSION_SCENES", testing::kHasAddressSanitizer ? 1 : 2));
  const std::unique_ptr<checker::Subject> engine = engine_subject(1);
  std::uint64_t seed = checker::confusion_setting("SIGHTLINE_CONFUSION_SEED", 0) + 500000;
  std::map<std::string, std::pair<int, int>> by_kind;  // visible, named
  int visible = 0;
  int named = 0;
  int among_equals = 0;  // another kind is named, not for certain, and this one explains as much
  for (const FaultKind& kind : fault_table()) {
    if (kind.on_spec == nullptr && kind.on_call == nullptr) continue;
    int shown = 0;
    for (int i = 0; i < 30 * num_scenes && shown < num_scenes; ++i, ++seed) {
      checker::RandomScene scene(seed);
      const Fault fault = scene.fault(kind);
      std::vector<Observation> seen = questions(scene);
      if (!std::ranges::all_of(seen, [&](Observation& o) {
            return can_plant(kind, o) && answer(*engine, o, std::span(&fault, 1));
          })) {
        continue;
      }
      if (checker::is_hidden(seen)) continue;
      ++shown;
      const checker::Report report = checker::diagnose(seen).value();
      const bool right = !report.faults.empty() && report.faults.front().slug == kind.slug;
      auto& [kind_visible, kind_named] = by_kind[std::string(kind.slug)];
      ++kind_visible;
      kind_named += right ? 1 : 0;
      named += right ? 1 : 0;
      for (const checker::NamedFault& other : report.faults) {
        EXPECT_FALSE(other.certain && other.slug != kind.slug)
            << to_string(fault) << " under " << describe(scene.spec()) << "\n"
            << to_text(report);
      }
      const bool is_equal = !right && !report.faults.empty() &&
                            checker::Searcher(seen).score(std::span(&fault, 1)).worst <= checker::kFits;
      among_equals += is_equal ? 1 : 0;
      if (!right && !is_equal) {
        std::printf("seed %llu: %s under %s\n%s\n", static_cast<unsigned long long>(seed),
                    to_string(fault).c_str(), describe(scene.spec()).c_str(), to_text(report).c_str());
      }
    }
    visible += shown;
  }
  for (const auto& [slug, counts] : by_kind) {
    std::printf("%-28s visible %3d named %3d\n", slug.c_str(), counts.first, counts.second);
  }
  std::printf("%zu kinds, visible %d, named first %d, named among equals %d\n", by_kind.size(), visible,
              named, among_equals);
  EXPECT_GE(by_kind.size(), 20U);
  EXPECT_GE((named + among_equals) * 100, visible * 97);
  EXPECT_LE(among_equals * 20, visible);
}

TEST(EngineFaultsTest, RightAnswersRaiseNoAlarm) {
  const std::unique_ptr<checker::Subject> engine = engine_subject(1);
  const std::uint64_t first = checker::confusion_setting("SIGHTLINE_CONFUSION_SEED", 0) + 600000;
  int answered = 0;
  for (std::uint64_t seed = first;
       seed < first + checker::confusion_setting("SIGHTLINE_CONFUSION_CONTROLS", 50); ++seed) {
    checker::RandomScene scene(seed);
    std::vector<Observation> seen = questions(scene);
    if (!std::ranges::all_of(seen, [&](Observation& o) { return answer(*engine, o, {}); })) continue;
    ++answered;
    const checker::Report report = checker::diagnose(seen).value();
    EXPECT_EQ(exit_code(report.verdict), 0) << "seed " << seed << " under " << describe(scene.spec()) << "\n"
                                            << to_text(report);
  }
  EXPECT_GT(answered, 40);
}

}  // namespace
}  // namespace sightline::subjects
