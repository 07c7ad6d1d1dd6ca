// Every fault that shows in a sequence of calls is named by what it did, in random declarations and types;
// nothing is named where nothing is wrong. The faults are planted in the oracle: what an implementation
// that shares no code with it answers is tested elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "checker/random_scene.h"
#include "sightline/checker/diagnose.h"
#include "support/sanitizers.h"

namespace sightline::checker {
namespace {

using testing::kHasAddressSanitizer;

// How often a kind was planted where it could be seen, and what it was called.
struct Counts {
  int planted = 0;
  int visible = 0;
  int named = 0;
  int certain = 0;
};

// Fewer scenes under AddressSanitizer, which makes each some ten times slower.
TEST(ConfusionTest, PlantedFaultsAreNamedFirstAndNoneIsNamedWrong) {
  const auto num_scenes =
      static_cast<int>(confusion_setting("SIGHTLINE_CONFUSION_SCENES", kHasAddressSanitizer ? 1 : 3));
  const int num_tries = std::max(40 * num_scenes, 120);
  std::map<std::string, Counts> by_slug;
  Counts all;
  std::uint64_t seed = confusion_setting("SIGHTLINE_CONFUSION_SEED", 0);
  for (const FaultKind& kind : fault_table()) {
    if (kind.on_spec == nullptr && kind.on_call == nullptr && kind.on_deviation == nullptr) continue;
    if (kind.slug == "score.sink" && kind.variant == "gradient") continue;  // d_sink is not observed
    Counts row;
    for (int i = 0; i < num_tries && row.visible < num_scenes; ++i, ++seed) {
      RandomScene scene(seed);
      const Fault fault = scene.fault(kind);
      std::vector<Observation> seen{scene.observation(), scene.observation()};
      bool applies = false;
      for (Observation& o : seen) applies = scene.observe(o, std::span(&fault, 1)) || applies;
      if (!applies) continue;
      ++row.planted;
      if (is_hidden(seen)) continue;
      ++row.visible;
      const Report report = diagnose(seen).value();
      const bool right = report.verdict == Verdict::kFault && report.faults.size() == 1 &&
                         report.faults[0].slug == kind.slug;
      if (right) {
        ++row.named;
        row.certain += report.faults[0].certain ? 1 : 0;
        continue;
      }
      // Not found is a miss that is counted; another name stated as certain is a failure by itself.
      for (const NamedFault& other : report.faults) {
        EXPECT_FALSE(other.certain && other.slug != kind.slug) << to_text(report);
      }
      std::printf("seed %llu: %s under %s\n%s\n", static_cast<unsigned long long>(seed),
                  to_string(fault).c_str(), describe(scene.spec()).c_str(), to_text(report).c_str());
    }
    EXPECT_GE(row.visible, 1) << kind.slug << "/" << kind.variant << " never showed";
    for (Counts* sum : {&by_slug[std::string(kind.slug)], &all}) {
      sum->planted += row.planted;
      sum->visible += row.visible;
      sum->named += row.named;
      sum->certain += row.certain;
    }
  }
  for (const auto& [slug, counts] : by_slug) {
    std::printf("%-28s planted %3d visible %3d named %3d certain %3d\n", slug.c_str(), counts.planted,
                counts.visible, counts.named, counts.certain);
    if (counts.visible >= 3) {
      EXPECT_GE(counts.named * 3, counts.visible * 2) << slug;
    }
  }
  std::printf("%-28s planted %3d visible %3d named %3d certain %3d\n", "all", all.planted, all.visible,
              all.named, all.certain);
  EXPECT_GE(all.named * 100, all.visible * 97) << all.named << " of " << all.visible;
}

TEST(ConfusionTest, RightAnswersRaiseNoAlarm) {
  const std::uint64_t first = confusion_setting("SIGHTLINE_CONFUSION_SEED", 0) + 1000000;
  const std::uint64_t num_scenes =
      confusion_setting("SIGHTLINE_CONFUSION_CONTROLS", kHasAddressSanitizer ? 20 : 100);
  for (std::uint64_t seed = first; seed < first + num_scenes; ++seed) {
    RandomScene scene(seed);
    std::vector<Observation> seen{scene.observation(), scene.observation()};
    for (Observation& o : seen) ASSERT_TRUE(scene.observe(o, {}));
    const Report report = diagnose(seen).value();
    EXPECT_TRUE(report.faults.empty() && exit_code(report.verdict) == 0) << "seed " << seed << "\n"
                                                                         << to_text(report);
  }
}

}  // namespace
}  // namespace sightline::checker
