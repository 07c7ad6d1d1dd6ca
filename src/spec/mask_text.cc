// The text form of masks: `causal & (window(4096) | first(4))`. Recursive descent with a depth limit.
#include <cctype>
#include <charconv>
#include <utility>

#include "sightline/base/nearest_name.h"
#include "sightline/spec/mask.h"
#include "spec/mask_rules.h"

namespace sightline {

namespace {

// Every valid program prints within this: each level of parentheses or `!` holds one operator.
constexpr int kMaxTextDepth = 2 * kMaxMaskNodes;

// What may have been meant by a name that no rule has: the nearest one, or all of them.
std::string suggestion(std::string_view name) {
  std::vector<std::string> names;
  for (const MaskRule& rule : kMaskRules) names.emplace_back(rule.name);
  const std::string near = nearest_name(name, names);
  return near.empty() ? fmt::format("; the rules are {}", fmt::join(names, ", "))
                      : fmt::format("; did you mean \"{}\"?", near);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  // or_expression end
  bool parse() {
    return parse_or(0) && (skip_space(), at_ == text_.size() || expected("'&', '|' or the end"));
  }

  MaskSpec mask{std::vector<MaskNode>{}};
  std::string error;
  std::size_t error_column = 0;

 private:
  bool parse_or(int depth) {
    if (!parse_and(depth)) return false;
    while (accept('|')) {
      if (!parse_and(depth) || !emit({MaskOp::kOr, 0})) return false;
    }
    return true;
  }

  bool parse_and(int depth) {
    if (!parse_unary(depth)) return false;
    while (accept('&')) {
      if (!parse_unary(depth) || !emit({MaskOp::kAnd, 0})) return false;
    }
    return true;
  }

  bool parse_unary(int depth) {
    if (depth > kMaxTextDepth) return refuse(at_, fmt::format("nested deeper than {}", kMaxTextDepth));
    if (accept('!')) return parse_unary(depth + 1) && emit({MaskOp::kNot, 0});
    if (accept('(')) return parse_or(depth + 1) && (accept(')') || expected("'&', '|' or ')'"));
    return parse_rule();
  }

  bool parse_rule() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) return expected("a rule, '!' or '('");
    const MaskRule* rule = find_rule(name);
    if (rule == nullptr) {
      return refuse(begin, fmt::format("there is no rule \"{}\"{}", name.substr(0, 40), suggestion(name)));
    }
    std::int64_t n = 0;
    if (rule->argument != RuleArgument::kAbsent && !parse_argument(*rule, n)) return false;
    rule_begin_ = begin;
    return emit({rule->op, n});
  }

  bool parse_argument(const MaskRule& rule, std::int64_t& n) {
    if (!accept('(')) return expected(fmt::format("'(' and a number after {}", rule.name));
    skip_space();
    const std::size_t begin = at_;
    const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (status == std::errc::invalid_argument) return expected("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    if (status == std::errc::result_out_of_range) return refuse(begin, "the number is too large");
    if (const auto ok = validate(mask_rule(rule.op, n)); !ok) {
      return refuse(begin, ok.error().message.substr(std::string_view("mask: ").size()));
    }
    return accept(')') || expected("')'");
  }

  bool emit(MaskNode node) {
    if (mask.nodes.size() == static_cast<std::size_t>(kMaxMaskNodes)) {
      return refuse(rule_begin_, fmt::format("more than {} rules and operators", kMaxMaskNodes));
    }
    depth_ += is_leaf(node.op) ? 1 : node.op == MaskOp::kNot ? 0 : -1;
    if (depth_ > kMaxMaskDepth) {
      return refuse(rule_begin_, fmt::format("nested deeper than {} values", kMaxMaskDepth));
    }
    mask.nodes.push_back(node);
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool expected(std::string_view what) {
    skip_space();
    if (at_ == text_.size()) return refuse(at_, fmt::format("expected {}, the text ends", what));
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c > 0x7e) return refuse(at_, fmt::format("expected {}, got byte 0x{:02x}", what, c));
    return refuse(at_, fmt::format("expected {}, got '{}'", what, text_[at_]));
  }

  bool refuse(std::size_t at, std::string message) {
    error_column = at + 1;
    error = std::move(message);
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t rule_begin_ = 0;
  int depth_ = 0;
};

// Binding strength, so that only needed parentheses are printed.
enum class Binding { kOr, kAnd, kNot, kLeaf };

struct Text {
  std::string text;
  Binding binding;
};

std::string within(const Text& part, Binding least) {
  return part.binding < least ? '(' + part.text + ')' : part.text;
}

}  // namespace

Result<MaskSpec> parse_mask(std::string_view text, std::size_t* error_column) {
  Parser parser(text);
  if (!parser.parse()) {
    if (error_column != nullptr) *error_column = parser.error_column;
    return fail(ErrorKind::kInvalidArgument, "mask: column {}: {}", parser.error_column, parser.error);
  }
  return std::move(parser.mask);
}

std::string to_string(const MaskNode& leaf) {
  const MaskRule* rule = find_rule(leaf.op);
  if (rule == nullptr) return leaf.op == MaskOp::kAnd ? "&" : leaf.op == MaskOp::kOr ? "|" : "!";
  if (rule->argument == RuleArgument::kAbsent) return std::string(rule->name);
  return fmt::format("{}({})", rule->name, leaf.n);
}

std::string to_string(const MaskSpec& mask) {
  if (!validate(mask)) return "(invalid mask)";
  std::vector<Text> stack;
  const auto pop = [&] {
    Text top = std::move(stack.back());
    stack.pop_back();
    return top;
  };
  for (const MaskNode& node : mask.nodes) {
    if (is_leaf(node.op)) {
      stack.push_back({to_string(node), Binding::kLeaf});
    } else if (node.op == MaskOp::kNot) {
      stack.push_back({'!' + within(pop(), Binding::kNot), Binding::kNot});
    } else {
      const Binding own = node.op == MaskOp::kAnd ? Binding::kAnd : Binding::kOr;
      const Binding tighter = node.op == MaskOp::kAnd ? Binding::kNot : Binding::kAnd;
      const Text b = pop();
      const Text a = pop();
      // Chains print without parentheses on the left only: `a & (b & c)` is another program than `a & b & c`.
      stack.push_back({fmt::format("{} {} {}", within(a, own), to_string(node), within(b, tighter)), own});
    }
  }
  return pop().text;
}

}  // namespace sightline
