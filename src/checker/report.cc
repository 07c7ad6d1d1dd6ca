#include "sightline/checker/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "sightline/checker/named_fault.h"

namespace sightline::checker {

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {"agrees",    "rounding", "fault", "convention",
                                         "ambiguous", "unknown",  "broken"};
  return kNames[static_cast<std::size_t>(verdict)];
}

int exit_code(Verdict verdict) {
  return verdict == Verdict::kAgrees || verdict == Verdict::kRounding || verdict == Verdict::kConvention ? 0
                                                                                                         : 1;
}

namespace {

// Text that a subject chose, on one line of a terminal: control bytes are escaped, and its middle is left
// out.
std::string shown(std::string_view text) {
  constexpr std::size_t kBegin = 300;
  constexpr std::size_t kEnd = 100;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == kBegin && text.size() > kBegin + kEnd) {
      i = text.size() - kEnd;
      out += " ... ";
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Report broken_report(std::string_view step, std::string_view why) {
  Report report;
  report.verdict = Verdict::kBroken;
  report.summary = fmt::format("broken: when {}: {}", step, shown(why));
  return report;
}

std::int64_t VisibleSet::num_different() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < declared.size(); ++i) count += declared[i] != observed[i] ? 1 : 0;
  return count;
}

namespace {

// One text of 0 and 1 a row.
Json rows_of(const std::vector<std::uint8_t>& pairs, std::int64_t kv_len) {
  Json rows = JsonArray{};
  std::string row;
  for (const std::uint8_t pair : pairs) {
    row += pair != 0 ? '1' : '0';
    if (static_cast<std::int64_t>(row.size()) < kv_len) continue;
    rows.push_back(row);
    row.clear();
  }
  return rows;
}

Json to_json(const VisibleSet& set) {
  Json json = JsonObject{};
  json.set("declared", rows_of(set.declared, set.kv_len));
  json.set("observed", rows_of(set.observed, set.kv_len));
  return json;
}

}  // namespace

std::string sentence(const Evidence& evidence) {
  if (evidence.what.ends_with('.')) return evidence.what;
  return fmt::format("{:.3g} {}", evidence.value, evidence.what);
}

std::string lies_away(double misfit) {
  if (std::isinf(misfit)) return "lies beyond every bound: a number stands against NaN or infinity";
  return fmt::format("lies {:.3g} times the rounding bound away", misfit);
}

Json to_json(const Report& report) {
  Json json = JsonObject{};
  json.set("schema", kReportSchema);
  json.set("verdict", to_string(report.verdict));
  json.set("summary", report.summary);
  Json faults = JsonArray{};
  for (const NamedFault& fault : report.faults) {
    Json parameters = JsonObject{};
    for (const MeasuredParameter& p : fault.parameters) parameters.set(p.name, p.value);
    Json one = JsonObject{};
    one.set("slug", fault.slug);
    if (!fault.variant.empty()) one.set("variant", fault.variant);
    one.set("what", fault.what);
    one.set("parameters", std::move(parameters));
    one.set("misfit", fault.misfit);
    one.set("certain", fault.certain);
    if (!fault.idiom.empty()) one.set("idiom", fault.idiom);
    if (!fault.fix.empty()) one.set("fix", fault.fix);
    faults.push_back(std::move(one));
  }
  json.set("faults", std::move(faults));
  Json evidence = JsonArray{};
  for (const Evidence& e : report.evidence) {
    Json one = JsonObject{};
    one.set("what", e.what);
    one.set("value", e.value);
    evidence.push_back(std::move(one));
  }
  json.set("evidence", std::move(evidence));
  Json ranked = JsonArray{};
  for (const RankedHypothesis& hypothesis : report.ranked) {
    Json one = JsonObject{};
    one.set("what", hypothesis.what);
    one.set("misfit", hypothesis.misfit);
    ranked.push_back(std::move(one));
  }
  json.set("ranked", std::move(ranked));
  Json row_errors = JsonArray{};
  for (const double error : report.row_errors) row_errors.push_back(error);
  json.set("row_errors", std::move(row_errors));
  json.set("next_probe", report.next_probe.empty() ? Json() : Json(report.next_probe));
  if (report.first_difference) {
    const Difference& d = *report.first_difference;
    Json index = JsonArray{};
    for (const std::int64_t i : d.index) index.push_back(i);
    Json one = JsonObject{};
    one.set("tensor", d.tensor);
    one.set("index", std::move(index));
    one.set("expected", d.expected);
    one.set("got", d.got);
    json.set("first_difference", std::move(one));
  } else {
    json.set("first_difference", Json());
  }
  json.set("visible_set", report.visible_set ? to_json(*report.visible_set) : Json());
  Json blind_spots = JsonArray{};
  for (const std::string& spot : report.blind_spots) blind_spots.push_back(spot);
  json.set("blind_spots", std::move(blind_spots));
  return json;
}

std::string to_text(const Report& report) {
  std::string text = report.summary + "\n";
  for (const NamedFault& fault : report.faults) {
    text += fmt::format("\n  {}  {}\n", full_name(fault), fault.what);
    for (const MeasuredParameter& p : fault.parameters) {
      text += fmt::format("    {} = {:.10g}{}\n", p.name, p.value,
                          p.what.empty() ? std::string() : fmt::format("  ({})", p.what));
    }
    text += fmt::format("    misfit {:.2g} of the rounding bound{}\n", fault.misfit,
                        fault.certain ? ", certain" : "");
    if (!fault.idiom.empty()) text += fmt::format("    usual cause  {}\n", fault.idiom);
    if (!fault.fix.empty()) text += fmt::format("    fix          {}\n", fault.fix);
  }
  if (report.first_difference) {
    const Difference& d = *report.first_difference;
    const std::string place =
        d.index.empty() ? d.tensor : fmt::format("{}[{}]", d.tensor, fmt::join(d.index, ", "));
    text += fmt::format("\n  first difference  {}: expected {:.8g}, got {:.8g}\n", place, d.expected, d.got);
  }
  if (!report.evidence.empty()) text += "\n";
  for (const Evidence& e : report.evidence) text += fmt::format("  {}\n", sentence(e));
  for (const std::string& spot : report.blind_spots) text += fmt::format("  not seen  {}\n", spot);
  if (!report.next_probe.empty()) text += fmt::format("\n  next probe  {}\n", report.next_probe);
  return text;
}

}  // namespace sightline::checker
