// Every fault that shows in a sequence of calls is named by what it did, in random declarations and types;
// nothing is named where nothing is wrong. The faults are planted in the oracle: what an implementation
// that shares no code with it answers is tested elsewhere.
#include <gtest/gtest.h>

#include <map>

#include "checker/random_scene.h"
#include "checker/search.h"
#include "sightline/checker/diagnose.h"

namespace sightline::checker {
namespace {

// True when the declared meaning explains what was seen less than clearly wrong.
bool is_hidden(const std::vector<Observation>& observations) {
  const Searcher searcher(observations);
  for (const Misfit& misfit : searcher.declared()) {
    if (misfit.worst > kExcluded) return false;
  }
  return true;
}

TEST(ConfusionTest, PlantedFaultsAreNamedFirstAndNoneIsNamedWrong) {
  constexpr int kScenes = 260;
  int planted = 0;
  int named = 0;
  std::map<std::string, int> by_slug;
  for (int seed = 0; seed < kScenes; ++seed) {
    RandomScene scene(static_cast<std::uint64_t>(seed));
    const Fault fault = scene.fault();
    std::vector<Observation> seen{scene.observation(), scene.observation()};
    bool applies = false;
    for (Observation& o : seen) applies = scene.observe(o, std::span(&fault, 1)) || applies;
    if (!applies || is_hidden(seen)) continue;
    ++planted;
    ++by_slug[std::string(fault.kind->slug)];
    const Report report = diagnose(seen).value();
    const bool right = report.verdict == Verdict::kFault && report.faults.size() == 1 &&
                       report.faults[0].slug == fault.kind->slug;
    if (right) ++named;
    if (!right) {
      // Not found is a miss that is counted; another name stated as certain is a failure by itself.
      for (const NamedFault& other : report.faults) EXPECT_FALSE(other.certain) << to_text(report);
      ADD_FAILURE_AT(__FILE__, __LINE__)
          << "seed " << seed << ": " << to_string(fault) << " under " << describe(scene.spec()) << "\n"
          << to_text(report);
    }
  }
  EXPECT_GE(planted, 80);
  EXPECT_GE(by_slug.size(), 20U);
  EXPECT_GE(named * 100, planted * 97) << named << " of " << planted;
}

TEST(ConfusionTest, RightAnswersRaiseNoAlarm) {
  for (int seed = 1000; seed < 1100; ++seed) {
    RandomScene scene(static_cast<std::uint64_t>(seed));
    std::vector<Observation> seen{scene.observation(), scene.observation()};
    for (Observation& o : seen) ASSERT_TRUE(scene.observe(o, {}));
    const Report report = diagnose(seen).value();
    EXPECT_TRUE(report.faults.empty() && exit_code(report.verdict) == 0) << "seed " << seed << "\n"
                                                                         << to_text(report);
  }
}

}  // namespace
}  // namespace sightline::checker
