#include "sightline/subjects/process/process_subject.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "subjects/process/child.h"
#include "subjects/process/protocol.h"

namespace sightline::subjects {
namespace {

// Room for a greeting, an error, or names and white space.
constexpr std::size_t kFewBytes = std::size_t{1} << 20;

// What an answer to `call` may have: every array there is, in digits, signs and white space enough.
std::size_t max_answer_bytes(const checker::Observation& call) {
  constexpr std::size_t kMost = std::size_t{256} << 20;
  constexpr std::size_t kNumberBytes = 64;
  const auto rows = static_cast<std::size_t>(call.q_len() * call.spec.heads.num_q_heads);
  const std::size_t num_numbers =
      rows * static_cast<std::size_t>(call.spec.heads.v_head_dim + 1 + call.kv_len()) +
      (call.d_out.empty() ? 0 : call.q.size() + call.k.size() + call.v.size());
  return std::min(kMost, kFewBytes + kNumberBytes * num_numbers);
}

// What is usually behind a line that is no JSON.
std::string hint(std::string_view line) {
  if (line.starts_with('{') && (line.find("NaN") != line.npos || line.find("Infinity") != line.npos)) {
    return "; JSON has no NaN and no Infinity, null stands for NaN";
  }
  if (line.starts_with('{')) return {};
  return fmt::format("; the line is '{}'; only answers belong on standard output", line.substr(0, 80));
}

class ProcessSubject : public checker::Subject {
 public:
  ProcessSubject(Child child, const ProcessOptions& options) : child_(std::move(child)), options_(options) {}

  Result<void> greet() {
    Json hello = JsonObject{};
    hello.set("do", "hello");
    hello.set("protocol", kProtocolVersion);
    SIGHTLINE_TRY(const Json reply, exchange(hello));
    SIGHTLINE_TRY(traits_, traits_from_json(reply));
    return {};
  }

  [[nodiscard]] checker::SubjectTraits traits() const override { return traits_; }

  Result<void> begin_sequence() override {
    if (!traits_.holds_cache) return {};
    Json begin = JsonObject{};
    begin.set("do", "begin");
    SIGHTLINE_CHECK(exchange(begin));
    return {};
  }

  Result<void> answer(checker::Observation& call) override {
    SIGHTLINE_TRY(const Json reply, exchange(call_to_json(call), max_answer_bytes(call)));
    return read_answer(reply, call);
  }

  Result<void> answer_batch(std::span<checker::Observation> rows) override {
    SIGHTLINE_TRY(const Json reply,
                  exchange(batch_to_json(rows), rows.size() * max_answer_bytes(rows.front())));
    return read_batch_answer(reply, rows);
  }

 private:
  Result<Json> exchange(const Json& request, std::size_t max_bytes = kFewBytes) {
    const auto deadline = Child::Clock::now() + options_.timeout;
    SIGHTLINE_CHECK(child_.write_line(request.dump(), deadline));
    SIGHTLINE_TRY(const std::string line, child_.read_line(deadline, max_bytes));
    Result<Json> parsed = parse_json(line, "the subject's answer", {.max_bytes = 2 * max_bytes});
    if (!parsed) return fail(parsed.error().kind, "{}{}", parsed.error().message, hint(line));
    const Json reply = std::move(*parsed);
    if (const Json* error = reply.find("error")) {
      return fail(ErrorKind::kInvalidContent, "the subject says: {}",
                  error->as_string() != nullptr ? *error->as_string() : error->dump());
    }
    return reply;
  }

  Child child_;
  ProcessOptions options_;
  checker::SubjectTraits traits_;
};

int become(const std::string& command, int in, int out) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
  return 127;
}

}  // namespace

Result<std::unique_ptr<checker::Subject>> start_child(ChildMain child_main, const ProcessOptions& options) {
  SIGHTLINE_TRY(Child child, Child::start(child_main, options.stop));
  auto subject = std::make_unique<ProcessSubject>(std::move(child), options);
  SIGHTLINE_CHECK(subject->greet());
  return subject;
}

Result<std::unique_ptr<checker::Subject>> start_process(const std::string& command,
                                                        const ProcessOptions& options) {
  return start_child([&](int in, int out) { return become(command, in, out); }, options);
}

}  // namespace sightline::subjects
