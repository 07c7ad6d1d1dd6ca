// The program on files made for tests: a tiny model with a tokenizer, as GGUF and as a folder, and what
// every refusal of the command line has in common.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_fixtures.h"
#include "sightline/text/vocabulary.h"
#include "support/sanitizers.h"
#include "support/subprocess.h"

namespace sightline::testing {

/// Runs `sightline ARGS...`.
RunResult sightline(std::vector<std::string> args, const RunOptions& options = {});

/// What an exit code promises: no signal, `code`, nothing on standard output and one line on standard error
/// that begins with "sightline: " and names every one of `parts`. Memory: see expect_peak.
void expect_failure(const RunResult& result, int code, const std::vector<std::string>& parts);

/// Largest resident size of a refusal: the program itself takes 15 to 25 MiB.
inline constexpr std::size_t kPeakBytes = std::size_t{64} << 20;

/// A run took at most `bytes` of memory, four times that under AddressSanitizer, whose shadow, red zones and
/// held back memory come on top.
void expect_peak(const RunResult& result, std::size_t bytes);

/// The commands that open a model, on `path`.
[[nodiscard]] std::vector<std::vector<std::string>> commands_on(const std::string& path);
/// Each of commands_on(path) ends with `code` and names the path and `part`.
void expect_refused(const std::string& path, std::string_view part, int code = 65);

/// Keys of a GGUF file that hold `spec`.
[[nodiscard]] Entries tokenizer_entries(const TokenizerSpec& spec);

/// A llama, of 3 layers and width 24 where nothing else is said, whose vocabulary is small_piece_spec(), or
/// small_byte_spec() as a folder.
struct TinyModel {
  explicit TinyModel(ModelSpec spec = small_llama_spec());
  TokenizerSpec tokenizer;
  TestModel model;
  Entries metadata;
  /// With the key's value changed, where one is given.
  void write(const std::string& path) const { write_llama_gguf(path, model, metadata); }
  void write_with(const std::string& path, const std::string& key, GgufValue value) const;
};

/// A folder with config.json, model.safetensors and tokenizer.json.
void write_tiny_folder(const std::string& folder);

void put_bytes(const std::string& path, const std::vector<std::byte>& bytes);
void put_text(const std::string& path, std::string_view text);
[[nodiscard]] std::string bytes_of(const std::string& path);

}  // namespace sightline::testing
