#include "sightline/checker/html.h"

#include <string>

#include "checker/html_page.h"

namespace sightline::checker {
namespace {

// JSON inside a script element: no text of it may end the element.
std::string for_script(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

Json numbers(const std::vector<double>& x, int digits) {
  Json array = JsonArray{};
  for (const double y : x) array.push_back(std::stod(fmt::format("{:.{}g}", y, digits)));
  return array;
}

Json to_json(const InsideView& view) {
  constexpr int kShades = 3;  // digits that a shade of a picture needs
  Json json = JsonObject{};
  json.set("head", view.head);
  json.set("query_begin", view.query_begin);
  json.set("num_queries", view.num_queries);
  json.set("key_begin", view.key_begin);
  json.set("num_keys", view.num_keys);
  json.set("declared", numbers(view.declared, kShades));
  json.set("explained", numbers(view.explained, kShades));
  json.set("explained_by", view.explained_by);
  json.set("angles", numbers(view.angles, 6));
  json.set("explained_angles", numbers(view.explained_angles, 6));
  return json;
}

}  // namespace

std::string to_html(const Report& report, const HtmlContext& context) {
  Json assumptions = JsonArray{};
  for (const std::string& line : context.assumptions) assumptions.push_back(line);
  Json data = JsonObject{};
  data.set("report", to_json(report));
  data.set("declared", context.declared);
  data.set("assumptions", std::move(assumptions));
  if (report.inside) data.set("inside", to_json(*report.inside));
  data.set("reproducer", context.reproducer);
  return kPageHead + for_script(data.dump()) + kPageTail;
}

}  // namespace sightline::checker
