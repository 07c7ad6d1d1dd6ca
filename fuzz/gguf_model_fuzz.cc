// A small valid model with edits to its keys, tensors and bytes. What is accepted generates two tokens, the
// same ones in one chunk and token by token.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>

#include "fuzz_check.h"
#include "gguf_edit.h"
#include "model/text_fixtures.h"
#include "sightline/generate/generate.h"
#include "sightline/model/model_text.h"

namespace sightline {
namespace {

/// A llama of one layer, with rows of 32 so that every block type fits, and a vocabulary of bytes.
GgufParts make_base() {
  ModelSpec spec = testing::small_llama_spec();
  spec.vocab_size = testing::kByteVocabularySize;
  spec.model_dim = 32;
  spec.context_length = 64;
  spec.tied_head = true;
  spec.layers.resize(1);
  spec.layers[0].ffn.ffn_dim = 32;
  std::vector<GgufEntry> metadata = testing::llama_metadata(spec);
  for (const GgufEntry& entry : testing::byte_vocabulary()) metadata.push_back(entry);
  const testing::TempFolder folder;
  const std::string path = folder.file("base.gguf");
  testing::write_llama_gguf(path, testing::random_model(spec, 1), metadata);
  auto parts = read_parts(path);
  fuzz_check(parts.has_value());
  return std::move(*parts);
}

/// A file in memory that has a path, as the public functions want it.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", fd_)) {
    fuzz_check(fd_ >= 0);
  }
  void set(std::span<const std::byte> bytes) const {
    fuzz_check(::ftruncate(fd_, 0) == 0);
    fuzz_check(::pwrite(fd_, bytes.data(), bytes.size(), 0) == std::ssize(bytes));
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

Result<std::vector<GenerateResult>> generate_two(Model& model, const Tokenizer& tokenizer, std::int64_t chunk,
                                                 int page_size) {
  const int vocab_size = model.spec().vocab_size;
  std::vector<std::vector<TokenId>> prompts = {{1}, {1, 100, 200}};
  for (auto& prompt : prompts) {
    for (TokenId& id : prompt) id %= vocab_size;
  }
  GenerateOptions options;
  options.max_tokens = 2;
  options.ignore_end = true;
  options.num_logprobs = 1;
  options.context = std::max<std::int64_t>(model.spec().context_length, 8);  // room for both tokens
  options.chunk = chunk;
  options.page_size = page_size;
  return generate(model, tokenizer, prompts, options);
}

void check_generation(Model& model, const Tokenizer& tokenizer) {
  const auto whole = generate_two(model, tokenizer, 512, 64);
  const auto stepped = generate_two(model, tokenizer, 1, 16);
  fuzz_check(whole.has_value() == stepped.has_value());
  if (!whole) {  // weights that give no number
    fuzz_check_refusal(whole.error());
    return;
  }
  for (std::size_t i = 0; i < whole->size(); ++i) {
    const GenerateResult& a = (*whole)[i];
    const GenerateResult& b = (*stepped)[i];
    fuzz_check(a.ids == b.ids && a.ids.size() == 2 && a.text == b.text);
    fuzz_check(a.logprobs.size() == b.logprobs.size());
    for (std::size_t j = 0; j < a.logprobs.size(); ++j) {
      fuzz_check(std::bit_cast<std::uint64_t>(*a.logprobs[j].logprob) ==
                 std::bit_cast<std::uint64_t>(*b.logprobs[j].logprob));
    }
  }
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  static const GgufParts base = make_base();
  static const MemoryFile file;
  static ThreadPool pool(1);
  FuzzInput in(data, size);
  file.set(edited_gguf(base, in));

  const auto info = read_model_info(file.path());
  const auto text = load_model_text(file.path());
  if (!text) fuzz_check_refusal(text.error());
  auto model = Model::load(file.path(), {}, pool);
  if (!info) {
    fuzz_check_refusal(info.error());
    fuzz_check(!model);
    return 0;
  }
  static_cast<void>(to_json(*info).dump());
  static_cast<void>(to_json(memory_table(*info)).dump());
  static_cast<void>(layer_groups(info->spec));
  if (!model) {
    fuzz_check_refusal(model.error());
    return 0;
  }
  fuzz_check(model->info().spec == info->spec);
  static const Tokenizer base_tokenizer = [] {
    FuzzInput nothing(nullptr, 0);
    file.set(edited_gguf(base, nothing));
    const auto own = load_model_text(file.path());
    fuzz_check(own.has_value());
    return own->tokenizer;
  }();
  check_generation(*model, text ? text->tokenizer : base_tokenizer);
  return 0;
}
