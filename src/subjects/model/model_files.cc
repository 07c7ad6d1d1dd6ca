#include "sightline/subjects/model/model_files.h"

#include <algorithm>
#include <optional>

#include "sightline/checker/named_fault.h"
#include "sightline/model/compare.h"

namespace sightline::subjects {
namespace {

using checker::NamedFault;
using checker::Report;
using checker::Verdict;

// A member of a spec whose change is a kind of the catalogue, by the end of its path.
struct MemberFault {
  std::string_view member;
  std::string_view slug;
  std::string_view parameter;  // of the second file's number; empty: none
};
constexpr MemberFault kMemberFaults[] = {
    {"attention.rope.theta", "rope.base", "theta"},
    {"attention.rope.cos_sin_magnitude", "rope.yarn_magnitude", "magnitude"},
    {"attention.rope.rotary_dim", "rope.partial_dim", "rotary_dim"},
    {"attention.heads.qk_head_dim", "head.dim_explicit", "head_dim"},
    {"attention.score.softmax_scale", "score.scale", "scale"},
    {"attention.score.logit_softcap", "score.softcap", "softcap"},
};

// The mask that a member's JSON text holds.
std::optional<MaskSpec> mask_of(const std::string& text) {
  const Result<Json> json = parse_json(text, "mask");
  if (!json || json->as_string() == nullptr) return std::nullopt;
  const Result<MaskSpec> mask = parse_mask(*json->as_string());
  return mask ? std::optional(*mask) : std::nullopt;
}

// A window that only one file has, or another number of keys in it; any other mask is no single kind.
std::optional<MemberFault> fault_of_mask(const SpecDifference& difference) {
  std::optional<MaskSpec> first = mask_of(difference.first), second = mask_of(difference.second);
  if (!first || !second) return std::nullopt;
  const bool has_first = uses(*first, MaskOp::kWindow), has_second = uses(*second, MaskOp::kWindow);
  if (has_first != has_second) return MemberFault{"", "mask.window_scope", ""};
  for (MaskSpec* mask : {&*first, &*second}) {
    for (MaskNode& node : mask->nodes) {
      if (node.op == MaskOp::kWindow) node.n = 1;
    }
  }
  if (has_first && *first == *second) return MemberFault{"", "mask.window_off_by_one", ""};
  return std::nullopt;
}

// The kind of a difference between specs; scaling is a group of members.
std::optional<MemberFault> fault_of(const SpecDifference& difference) {
  if (difference.member.ends_with("attention.mask")) return fault_of_mask(difference);
  for (const MemberFault& fault : kMemberFaults) {
    if (difference.member.ends_with(fault.member)) return fault;
  }
  if (difference.member.find("attention.rope.scaling") != std::string::npos) {
    return MemberFault{"", "rope.scaling_missing", ""};
  }
  return std::nullopt;
}

std::string place_of(const WeightComparison& weight) {
  return weight.layer < 0 ? weight.block : fmt::format("layer {}, {}", weight.layer, weight.block);
}

class FilesReport {
 public:
  explicit FilesReport(const ModelComparison& comparison) : comparison_(comparison) {}

  Report report() {
    for (const SpecDifference& difference : comparison_.spec) add_member(difference);
    add_weights();
    for (const std::string& note : comparison_.notes) report_.blind_spots.push_back(note);
    conclude();
    return std::move(report_);
  }

 private:
  NamedFault& fault(std::string_view slug) {
    const auto found = std::ranges::find(report_.faults, slug, &NamedFault::slug);
    if (found != report_.faults.end()) return *found;
    report_.faults.push_back(checker::named_fault(slug));
    return report_.faults.back();
  }

  void evidence(std::string what, double value) { report_.evidence.push_back({std::move(what), value}); }

  void add_member(const SpecDifference& difference) {
    evidence(fmt::format("layers differ in {}: {} here, {} there", difference.member, difference.first,
                         difference.second),
             difference.num_layers);
    const std::optional<MemberFault> kind = fault_of(difference);
    if (!kind) {
      has_unknown_ = true;
      return;
    }
    NamedFault& named = fault(kind->slug);
    named.certain = true;  // both files say it
    double number = 0;
    const Result<Json> second = parse_json(difference.second, "member");
    if (!kind->parameter.empty() && second && second->get_number(number)) {
      named.parameters.push_back({std::string(kind->parameter), number, "what the second file says"});
    }
  }

  // Blocks by their relation: q and k of many layers are one finding.
  void add_weights() {
    add_row_widths();
    for (const WeightRelation relation :
         {WeightRelation::kRowOrder, WeightRelation::kRowsPermuted, WeightRelation::kScaled,
          WeightRelation::kHeadOrder, WeightRelation::kTransposed, WeightRelation::kOther}) {
      std::vector<const WeightComparison*> blocks;
      for (const WeightComparison& weight : comparison_.weights) {
        if (weight.relation == relation) blocks.push_back(&weight);
      }
      if (!blocks.empty()) add_relation(relation, blocks);
    }
    const auto rounded =
        std::ranges::count(comparison_.weights, WeightRelation::kRounding, &WeightComparison::relation);
    if (rounded > 0)
      evidence("blocks differ by no more than their stored types round", static_cast<double>(rounded));
    has_rounding_ = rounded > 0;
  }

  // Rows of q and of k that were ordered for one width are one mistake, as are those of many layers.
  void add_row_widths() {
    struct Mistake {
      RowMistake mistake = RowMistake::kNone;
      int width = 0;
      bool of_q = false, of_k = false;
      std::vector<const WeightComparison*> blocks;
    };
    std::vector<Mistake> mistakes;
    for (const WeightComparison& weight : comparison_.weights) {
      if (weight.relation != WeightRelation::kRowWidth) continue;
      auto found = std::ranges::find_if(mistakes, [&](const Mistake& m) {
        return m.mistake == weight.row_mistake && m.width == weight.row_width;
      });
      if (found == mistakes.end()) {
        found = mistakes.insert(mistakes.end(), {weight.row_mistake, weight.row_width, false, false, {}});
      }
      (weight.block == "q" ? found->of_q : found->of_k) = true;
      found->blocks.push_back(&weight);
    }
    for (const Mistake& m : mistakes) {
      const std::string_view which = m.of_q && m.of_k ? "" : m.of_q ? "query_" : "key_";
      const std::string_view way = m.mistake == RowMistake::kRead ? "read" : "written";
      const Result<Fault> fault =
          parse_fault(fmt::format("rope.pairing/{}rows_{}:width={}", which, way, m.width));
      if (!fault) {
        has_unknown_ = true;
        continue;
      }
      note_blocks(WeightRelation::kRowWidth, m.blocks);
      report_.faults.push_back(checker::named_fault(*fault));
      report_.faults.back().certain = m.blocks.size() > 1;  // two matrices in the same odd order
    }
  }

  void note_blocks(WeightRelation relation, const std::vector<const WeightComparison*>& blocks) {
    const WeightComparison& first = *blocks.front();
    evidence(fmt::format("blocks are related by '{}', the first {}", to_string(relation), place_of(first)),
             static_cast<double>(blocks.size()));
    if (!report_.first_difference) {
      report_.first_difference = {place_of(first) + ", relative error", {}, 0, first.relative_error};
    }
  }

  void add_relation(WeightRelation relation, const std::vector<const WeightComparison*>& blocks) {
    const WeightComparison& first = *blocks.front();
    note_blocks(relation, blocks);
    const bool is_of_qk = std::ranges::all_of(
        blocks, [](const WeightComparison* w) { return w->block == "q" || w->block == "k"; });
    NamedFault* named = nullptr;
    if (relation == WeightRelation::kRowOrder) named = &fault("rope.pairing");
    if (relation == WeightRelation::kRowsPermuted) named = &fault("head.fused_qkv_layout");
    if (relation == WeightRelation::kScaled && is_of_qk) {
      named = &fault("score.scale");
      named->parameters.push_back({"factor", first.factor, "times the weights of the first file"});
    }
    if (named == nullptr) {
      has_unknown_ = true;
      return;
    }
    named->certain = named->certain || std::ranges::any_of(blocks, [&](const WeightComparison* w) {
                       return w->layer != first.layer;
                     });
  }

  void conclude() {
    if (report_.faults.empty() && !has_unknown_ && comparison_.notes.empty()) {
      report_.verdict = has_rounding_ ? Verdict::kRounding : Verdict::kAgrees;
      report_.summary = has_rounding_ ? "rounding: the files are one model, stored in other types"
                                      : "agrees: the files are one model, to the last bit of every weight";
      return;
    }
    std::string names;
    for (const NamedFault& named : report_.faults) names += (names.empty() ? "" : " and ") + full_name(named);
    if (has_unknown_ || report_.faults.empty()) {
      report_.verdict = Verdict::kUnknown;
      report_.summary = "unknown: the files differ in ways that are no kind of the catalogue" +
                        (names.empty() ? "" : "; beside them " + names);
      return;
    }
    report_.verdict = Verdict::kFault;
    report_.summary = fmt::format("fault: {}: {}", names, report_.faults.front().what);
  }

  const ModelComparison& comparison_;
  Report report_;
  bool has_unknown_ = false;
  bool has_rounding_ = false;
};

}  // namespace

Result<Report> check_model_files(const std::string& ours, const std::string& theirs,
                                 const LoadOptions& options) {
  SIGHTLINE_TRY(const ModelComparison comparison, compare_models(ours, theirs, options));
  return FilesReport(comparison).report();
}

}  // namespace sightline::subjects
