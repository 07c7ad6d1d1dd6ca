// llama2c_to_gguf: a llama2.c checkpoint and its tokenizer to GGUF, to a Hugging Face folder, or to both.
#include <cstdio>
#include <new>
#include <optional>
#include <string_view>

#include "llama2c.h"

namespace {

constexpr const char* kUsage =
    "usage: llama2c_to_gguf [--force] [--hf OUTDIR] MODEL.bin TOK.bin [OUT.gguf]\n"
    "  Converts a llama2.c checkpoint (version 0) with its tokenizer to a GGUF file, to a Hugging Face "
    "folder\n"
    "  (--hf), or to both. GGUF keeps the order of the q and k rows (both rotate neighbours); the folder "
    "gets them\n"
    "  permuted to halves. --force replaces existing files.\n";

sightline::Result<void> convert(const char* model_path, const char* tokenizer_path,
                                std::optional<std::string_view> gguf_path,
                                std::optional<std::string_view> hf_folder, bool overwrite) {
  SIGHTLINE_TRY(const auto model, sightline::llama2c::read_checkpoint(model_path));
  SIGHTLINE_TRY(const auto vocabulary, sightline::llama2c::read_vocabulary(tokenizer_path, model.vocab_size));
  if (gguf_path) SIGHTLINE_CHECK(sightline::llama2c::write_gguf(*gguf_path, model, vocabulary, overwrite));
  if (hf_folder)
    SIGHTLINE_CHECK(sightline::llama2c::write_hf_folder(*hf_folder, model, vocabulary, overwrite));
  return {};
}

int run(int argc, char** argv) {
  bool overwrite = false;
  std::optional<std::string_view> hf_folder;
  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "--force") {
      overwrite = true;
    } else if (argument == "--hf" && i + 1 < argc) {
      hf_folder = argv[++i];
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "llama2c_to_gguf: option %s is unknown or lacks its value\n%s", argv[i], kUsage);
      return 2;
    } else {
      files.push_back(argv[i]);
    }
  }
  if (files.size() < 2 || files.size() > 3 || (files.size() == 2 && !hf_folder)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto gguf = files.size() == 3 ? std::optional<std::string_view>(files[2]) : std::nullopt;
  const auto done = convert(files[0], files[1], gguf, hf_folder, overwrite);
  if (done) return 0;
  std::fprintf(stderr, "llama2c_to_gguf: %s\n", done.error().message.c_str());
  return sightline::exit_code(done.error().kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("llama2c_to_gguf: out of memory\n", stderr);
    return sightline::exit_code(sightline::ErrorKind::kOutOfMemory);
  }
}
