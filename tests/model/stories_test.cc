// stories260K: the text that llama2.c's own test expects, from a GGUF file and from a Hugging Face folder.
#include <gtest/gtest.h>

#include <algorithm>

#include "llama2c.h"
#include "model/model_runner.h"
#include "sightline/base/file.h"
#include "sightline/model/model_text.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

class StoriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string bin = test_data("stories260K/stories260K.bin");
    const std::string tok = test_data("stories260K/tok512.bin");
    const std::string text = test_data("stories260K/expected-greedy-200.txt");
    if (bin.empty() || tok.empty() || text.empty()) {
      GTEST_SKIP() << "SIGHTLINE_TEST_DATA: stories260K is not there";
    }
    expected_ = *read_file(text);
    const auto checkpoint = llama2c::read_checkpoint(bin);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto vocabulary = llama2c::read_vocabulary(tok, checkpoint->vocab_size);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    ASSERT_TRUE(llama2c::write_gguf(folder_.file("m.gguf"), *checkpoint, *vocabulary, true));
    ASSERT_TRUE(llama2c::write_hf_folder(folder_.file("hf"), *checkpoint, *vocabulary, true));
  }

  // 200 steps of the likeliest token from the begin-of-text token, as llama2.c's `-t 0 -n 200` with no
  // prompt.
  std::string write(const std::string& name, const LoadOptions& options = {}) {
    const std::string path = folder_.file(name);
    LoadedModel loaded = load_file(path, 1, options);
    const auto text = load_model_text(path);
    if (!text) return text.error().message;
    KvCache cache = make_cache(*loaded.model);
    const SequenceId sequence = cache.add_sequence();
    std::vector<TokenId> written;
    TokenId id = text->tokenizer.bos_id();
    for (std::int64_t pos = 0; pos < 200; ++pos) {
      Tokens one;
      one.ids = {id};
      one.coords = coords_range(pos, pos + 1);
      const std::vector<float> logits = run_on(*loaded.model, cache, sequence, one);
      id = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (id == text->tokenizer.bos_id()) break;
      written.push_back(id);
    }
    const auto decoded = text->tokenizer.decode(written);
    return decoded ? *decoded : decoded.error().message;
  }

  TempFolder folder_;
  std::string expected_;
};

TEST_F(StoriesTest, GreedyTextFromGgufAndFromFolderIsThePublishedOne) {
  ASSERT_EQ(expected_.size(), 464U);
  EXPECT_EQ(write("m.gguf"), expected_);
  EXPECT_EQ(write("hf"), expected_);
}

TEST_F(StoriesTest, TheOtherRowOrderFailsPerFileKind) {
  LoadOptions options;
  options.rope_pairing = RopePairing::kHalfSplit;
  EXPECT_NE(write("m.gguf", options), expected_);
  options.rope_pairing = RopePairing::kInterleaved;
  EXPECT_NE(write("hf", options), expected_);
}

}  // namespace
}  // namespace sightline
