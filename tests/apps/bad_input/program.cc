#include "apps/bad_input/program.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "text/tokenizer_fixtures.h"

// Freed memory is held back, 256 MiB of it where nothing is said, and counts in every peak: that of the
// program, and that of the test, with which the peak of a program begins.
static constexpr const char* kSanitizerOptions = "quarantine_size_mb=8";
#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return kSanitizerOptions; }
#endif

namespace sightline::testing {

RunResult sightline(std::vector<std::string> args, const RunOptions& options) {
  args.insert(args.begin(), SIGHTLINE_PROGRAM);
  if (!kHasAddressSanitizer) return run_program(args, options);
  RunOptions with_sanitizer = options;
  const char* given = std::getenv("ASAN_OPTIONS");
  with_sanitizer.environment.emplace_back(
      "ASAN_OPTIONS", fmt::format("{}:{}", kSanitizerOptions, given == nullptr ? "" : given));
  return run_program(args, with_sanitizer);
}

void expect_peak(const RunResult& result, std::size_t bytes) {
  EXPECT_LT(result.peak_bytes, (kHasAddressSanitizer ? 4 : 1) * bytes);
}

void expect_failure(const RunResult& result, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("sightline: ")) << result.err;
  EXPECT_LT(result.err.size(), 2000U) << result.err;
  for (const std::string& part : parts) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "expected " << part << " in: " << result.err;
  }
}

std::vector<std::vector<std::string>> commands_on(const std::string& path) {
  return {
      {"info", path}, {"tokenize", "-m", path, "text"}, {"generate", "-m", path, "-n", "1", "--tokens", "1"}};
}

void expect_refused(const std::string& path, std::string_view part, int code) {
  for (const auto& command : commands_on(path)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(command, " ")));
    const RunResult result = sightline(command);
    expect_failure(result, code, {path, std::string(part)});
    expect_peak(result, kPeakBytes);
  }
}

Entries tokenizer_entries(const TokenizerSpec& spec) {
  Entries entries;
  const auto add = [&](const char* key, GgufValue value) {
    entries.push_back({std::string("tokenizer.ggml.") + key, std::move(value), 0});
  };
  const auto strings = [](const std::vector<std::string>& texts) {
    GgufStrings out;
    for (const std::string& text : texts) out.push_back(text);
    return GgufArray(std::move(out));
  };
  add("model", spec.model);
  if (!spec.pre.empty()) add("pre", spec.pre);
  add("tokens", strings(spec.tokens));
  if (!spec.scores.empty()) add("scores", GgufArray(spec.scores));
  if (!spec.types.empty()) add("token_type", GgufArray(spec.types));
  if (!spec.merges.empty()) add("merges", strings(spec.merges));
  if (spec.bos_id) add("bos_token_id", static_cast<std::uint32_t>(*spec.bos_id));
  if (spec.eos_id) add("eos_token_id", static_cast<std::uint32_t>(*spec.eos_id));
  return entries;
}

TinyModel::TinyModel(ModelSpec spec) : tokenizer(text::small_piece_spec()) {
  spec.vocab_size = static_cast<int>(tokenizer.tokens.size());
  model = random_model(spec, 3);
  metadata = llama_metadata(spec);
  for (GgufEntry& entry : tokenizer_entries(tokenizer)) metadata.push_back(std::move(entry));
}

void TinyModel::write_with(const std::string& path, const std::string& key, GgufValue value) const {
  Entries changed = metadata;
  set_entry(changed, key, std::move(value));
  write_llama_gguf(path, model, changed);
}

void write_tiny_folder(const std::string& folder) {
  ModelSpec spec = small_llama_spec();
  spec.vocab_size = static_cast<int>(text::small_byte_spec().tokens.size());
  write_llama_hf(folder, random_model(spec, 4), llama_config(spec));
  put_text(folder + "/tokenizer.json", text::small_byte_json().dump());
}

void put_bytes(const std::string& path, const std::vector<std::byte>& bytes) {
  put_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void put_text(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(out.good()) << path;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace sightline::testing
