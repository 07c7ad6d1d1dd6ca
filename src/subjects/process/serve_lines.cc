// The subject's side of the protocol.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "sightline/subjects/process/process_subject.h"
#include "subjects/process/protocol.h"

namespace sightline::subjects {
namespace {

constexpr std::size_t kMaxRequest = std::size_t{256} << 20;

// The next line; nothing when the input has ended.
Result<std::optional<std::string>> next_line(int in, std::string& buffered) {
  for (;;) {
    if (const std::size_t end = buffered.find('\n'); end != std::string::npos) {
      std::string line = buffered.substr(0, end);
      buffered.erase(0, end + 1);
      return line;
    }
    if (buffered.size() > kMaxRequest) return fail(ErrorKind::kIo, "a request of over 256 MiB");
    std::array<char, 1 << 16> chunk;
    const ssize_t n = ::read(in, chunk.data(), chunk.size());
    if (n == 0) return std::nullopt;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorKind::kIo, "reading a request: {}", std::strerror(errno));
    buffered.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

Result<void> write_all(int out, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(out, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorKind::kIo, "writing an answer: {}", std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<Json> answer_to_batch(checker::Subject& subject, const Json& request) {
  const Json* calls = request.find("rows");
  if (calls == nullptr || calls->as_array() == nullptr || calls->as_array()->empty()) {
    return fail(ErrorKind::kInvalidContent, "rows: expected an array of calls");
  }
  std::vector<checker::Observation> rows;
  for (const Json& call : *calls->as_array()) {
    SIGHTLINE_TRY(checker::Observation row, call_from_json(call));
    rows.push_back(std::move(row));
  }
  SIGHTLINE_CHECK(subject.answer_batch(rows));
  Json answers = JsonArray{};
  for (const checker::Observation& row : rows) answers.push_back(answer_to_json(row));
  Json json = JsonObject{};
  json.set("rows", std::move(answers));
  return json;
}

Result<Json> answer_to(checker::Subject& subject, std::string_view line) {
  SIGHTLINE_TRY(const Json request, parse_json(line, "request", {.max_bytes = kMaxRequest}));
  const Json* what = request.find("do");
  const std::string word = what != nullptr && what->as_string() != nullptr ? *what->as_string() : "";
  if (word == "hello") return to_json(subject.traits());
  if (word == "begin") {
    SIGHTLINE_CHECK(subject.begin_sequence());
    return Json(JsonObject{});
  }
  if (word == "answer_batch") return answer_to_batch(subject, request);
  if (word != "answer") {
    return fail(ErrorKind::kInvalidContent, "do: '{}', expected hello, begin, answer or answer_batch", word);
  }
  SIGHTLINE_TRY(checker::Observation call, call_from_json(request));
  SIGHTLINE_CHECK(subject.answer(call));
  return answer_to_json(call);
}

std::string error_line(const Error& error) {
  Json json = JsonObject{};
  json.set("error", error.message);
  return json.dump() + "\n";
}

}  // namespace

int refuse_lines(const Error& error, int in, int out) {
  std::string buffered;
  if (const auto line = next_line(in, buffered); line && *line) (void)write_all(out, error_line(error));
  return 1;
}

Result<void> serve_lines(checker::Subject& subject, int in, int out) {
  std::string buffered;
  for (;;) {
    SIGHTLINE_TRY(const std::optional<std::string> line, next_line(in, buffered));
    if (!line) return {};
    const Result<Json> answer = answer_to(subject, *line);
    SIGHTLINE_CHECK(write_all(out, answer ? answer->dump() + "\n" : error_line(answer.error())));
  }
}

}  // namespace sightline::subjects
