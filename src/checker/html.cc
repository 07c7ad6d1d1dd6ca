#include "sightline/checker/html.h"

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

}  // namespace

std::string to_html(const Report& report, const HtmlContext& context) {
  Json assumptions = JsonArray{};
  for (const std::string& line : context.assumptions) assumptions.push_back(line);
  Json data = JsonObject{};
  data.set("report", to_json(report));
  data.set("declared", context.declared);
  data.set("assumptions", std::move(assumptions));
  data.set("reproducer", context.reproducer);
  return kPageHead + for_script(data.dump()) + kPageTail;
}

}  // namespace sightline::checker
