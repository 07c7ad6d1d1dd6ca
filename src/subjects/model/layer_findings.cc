#include "subjects/model/layer_findings.h"

#include <algorithm>

#include "sightline/checker/diagnose.h"
#include "sightline/checker/named_fault.h"
#include "subjects/model/layer_tensors.h"

namespace sightline::subjects {
namespace {

constexpr std::int64_t kMaxListed = 16;  // places of an order that become parameters

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

checker::Difference difference(const ComparedTensor& tensor, double tolerance) {
  for (std::size_t i = 0; i < tensor.pairs.size(); ++i) {
    const TensorPair& pair = tensor.pairs[i];
    const std::int64_t index = tensor_misfit(pair, tolerance).index;
    if (index < 0) continue;
    const std::int64_t width = pair.num_heads * pair.dim;
    std::vector<std::int64_t> place{index / width, index % width};
    if (tensor.tensor != "output") place = {index / width, index % width / pair.dim, index % pair.dim};
    return {tensor.name(), std::move(place), pair.ours[at(index)], pair.theirs[at(index)]};
  }
  return {};
}

double worst(const ComparedTensor& tensor, double tolerance) {
  double worst = 0;
  for (const TensorPair& pair : tensor.pairs) worst = std::max(worst, tensor_misfit(pair, tolerance).worst);
  return worst;
}

struct Words {
  const char* slug;
  const char* variant;
  const char* parameter;  // null: the order
  const char* what;
};

Words words_of(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kScaled:
      return {"tensor.scaled", "", "factor", "theirs over ours"};
    case ChangeKind::kOffset:
      return {"tensor.offset", "", "added", "theirs minus ours"};
    case ChangeKind::kShifted:
      return {"tensor.shifted", "", "rows", "by which theirs come later"};
    case ChangeKind::kHeads:
      return {"tensor.permuted", "heads", nullptr, "the head of ours that stands here"};
    case ChangeKind::kTokens:
      return {"tensor.permuted", "tokens", nullptr, "the row of ours that stands here"};
    case ChangeKind::kComponents:
      return {"tensor.permuted", "components", nullptr, "the component of ours that stands here"};
    case ChangeKind::kHeadsFirst:
      break;
  }
  return {"head.merge_transpose", "", nullptr, ""};
}

checker::NamedFault named(const ComparedTensor& tensor, const TensorChange& change, double tolerance) {
  const Words words = words_of(change.kind);
  checker::NamedFault fault = checker::named_fault(words.slug);
  fault.variant = words.variant;
  fault.what = fmt::format("{} is {}", tensor.name(), describe(change));
  fault.parameters.push_back({"layer", static_cast<double>(tensor.layer), "the first that differs, from 0"});
  if (words.parameter != nullptr) fault.parameters.push_back({words.parameter, change.value, words.what});
  std::int64_t num_moved = 0;
  for (std::size_t i = 0; i < change.order.size(); ++i) {
    if (change.order[i] == static_cast<std::int64_t>(i) || ++num_moved > kMaxListed) continue;
    fault.parameters.push_back(
        {fmt::format("order.{}", i), static_cast<double>(change.order[i]), words.what});
  }
  fault.misfit = change.misfit;
  fault.certain = num_decisive(tensor.pairs, change, tolerance) >= 2;
  return fault;
}

const std::vector<double>* theirs_of(const std::vector<ComparedTensor>& all, std::int64_t layer,
                                     std::string_view tensor, std::size_t text) {
  for (const ComparedTensor& one : all) {
    if (one.layer != layer || one.tensor != tensor) continue;
    const auto found = std::ranges::find(one.texts, text);
    if (found != one.texts.end()) return &one.theirs[static_cast<std::size_t>(found - one.texts.begin())];
  }
  return nullptr;
}

// Attention that differs although what it reads does not, to the oracle.
Result<checker::Report> diagnose_attention(Model& model, std::span<const ModelObservation> texts,
                                           const std::vector<ComparedTensor>& all,
                                           const ComparedTensor& attention) {
  std::vector<checker::Observation> observations;
  const std::int64_t layer = attention.layer;
  for (std::size_t i = 0; i < attention.texts.size(); ++i) {
    const ModelObservation& text = texts[attention.texts[i]];
    checker::Observation o;
    o.spec = model.attention_specs()[at(layer)];
    std::vector<std::string> names;
    for (const char* tensor : {"q", "k", "v"}) names.push_back(fmt::format("layer.{}.{}", layer, tensor));
    SIGHTLINE_TRY(auto ours, run_and_keep(model, text.ids, names));
    std::vector<double>* const places[] = {&o.q, &o.k, &o.v};
    for (std::size_t n = 0; n < names.size(); ++n) {
      const std::vector<double>* theirs =
          theirs_of(all, layer, names[n].substr(names[n].size() - 1), attention.texts[i]);
      const auto kept =
          std::ranges::find(ours, names[n], &std::pair<std::string, std::vector<double>>::first);
      *places[n] = theirs != nullptr ? *theirs : kept->second;
    }
    o.q_coords = o.kv_coords = coords_range(0, std::ssize(text.ids));
    for (std::int64_t begin = 0; text.chunk > 0 && begin < std::ssize(text.ids); begin += text.chunk)
      o.call_begins.push_back(begin);
    o.out = attention.theirs[i];
    observations.push_back(std::move(o));
  }
  return checker::diagnose(observations);
}

}  // namespace

std::string LayerFindings::summary() const {
  std::string names;
  for (const checker::NamedFault& fault : faults)
    names += (names.empty() ? "" : " and ") + checker::full_name(fault);
  return fmt::format("fault: {} in layer {}: {}", names, faults.front().parameters.front().value,
                     faults.front().what);
}

Result<LayerFindings> find_in_layers(Model& model, std::span<const ModelObservation> texts,
                                     double tolerance) {
  LayerFindings found;
  SIGHTLINE_TRY(const std::vector<ComparedTensor> all, compare_tensors(model, texts, tolerance));
  if (!all.empty()) {
    found.evidence.push_back(
        {fmt::format("{} tensors of layers were compared.", all.size()), static_cast<double>(all.size())});
  }
  const auto differs = [&](const ComparedTensor& one) { return worst(one, tolerance) > 1; };
  const auto first = std::ranges::find_if(all, differs);
  if (first == all.end()) return found;
  found.first = difference(*first, tolerance);
  const auto is_later = [&](const ComparedTensor& one) {
    return one.layer > first->layer || (one.layer == first->layer && one.step > first->step);
  };
  std::int64_t num_later = 0, num_later_different = 0;
  for (const ComparedTensor& one : all) {
    if (!is_later(one)) continue;
    ++num_later;
    num_later_different += differs(one) ? 1 : 0;
  }
  found.evidence.push_back(
      {fmt::format("{} of {} tensors behind {} differ too.", num_later_different, num_later, first->name()),
       static_cast<double>(num_later_different)});
  for (const ComparedTensor& one : all) {
    if (one.layer != first->layer || one.step != first->step || !differs(one)) continue;
    found.evidence.push_back({fmt::format("{} lies {:.3g} tolerances from ours; up to 1 is rounding.",
                                          one.name(), worst(one, tolerance)),
                              worst(one, tolerance)});
    if (const auto change = explain_change(one.pairs, tolerance)) {
      found.faults.push_back(named(one, *change, tolerance));
      continue;
    }
    found.faults.clear();
    if (one.tensor != "attention") return found;
    SIGHTLINE_TRY(checker::Report report, diagnose_attention(model, texts, all, one));
    if (report.verdict != checker::Verdict::kFault) return found;
    for (checker::NamedFault& fault : report.faults) {
      fault.parameters.insert(fault.parameters.begin(),
                              {"layer", static_cast<double>(one.layer), "the first that differs, from 0"});
      found.faults.push_back(std::move(fault));
    }
  }
  return found;
}

}  // namespace sightline::subjects
