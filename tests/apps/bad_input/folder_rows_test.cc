// Rows 35 to 51: folders whose safetensors or tokenizer.json is bad.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "apps/bad_input/program.h"
#include "formats/byte_builder.h"
#include "sightline/model/model_text.h"
#include "text/tokenizer_fixtures.h"

namespace sightline::testing {
namespace {

using testing_formats::ByteBuilder;

class FolderRowsTest : public ::testing::Test {
 protected:
  FolderRowsTest() { write_tiny_folder(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// info and generate refuse the folder for what its weights or its index hold; tokenize needs neither.
  void expect_weights_refused(const std::string& named_file, const std::string& part, int code = 65) {
    for (const auto& command : commands_on(path_)) {
      const RunResult result = sightline(command);
      if (command[0] == "tokenize") {
        EXPECT_EQ(result.exit_code, 0) << result.err;
        continue;
      }
      expect_failure(result, code, {file(named_file), part});
      expect_peak(result, kPeakBytes);
    }
  }
  void put_header(std::string_view header, std::size_t num_data_bytes) {
    put_bytes(file("model.safetensors"), ByteBuilder().str(header).zeros(num_data_bytes).bytes());
  }
  void expect_header_refused(const char* row, std::string_view header, std::size_t num_data_bytes,
                             const std::string& part) {
    SCOPED_TRACE(fmt::format("row {}: {}", row, header.substr(0, 100)));
    put_header(header, num_data_bytes);
    expect_weights_refused("model.safetensors", part);
  }
  void expect_tokenizer_refused(const Json& json, const std::string& part) {
    expect_tokenizer_text_refused(json.dump(), part);
  }
  void expect_tokenizer_text_refused(std::string_view text, const std::string& part) {
    SCOPED_TRACE(fmt::format("{}...", text.substr(0, 100)));
    put_text(file("tokenizer.json"), text);
    for (const auto& command : commands_on(path_)) {
      SCOPED_TRACE(command[0]);
      const RunResult result = sightline(command);
      expect_failure(result, 65, {file("tokenizer.json"), part});
      expect_peak(result, kPeakBytes + 8 * text.size());
    }
  }

  TempFolder folder_;
  std::string path_ = folder_.file("model");
};

/// One tensor 'a' of these members.
std::string header_of(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

TEST_F(FolderRowsTest, Row35HeaderLengthsThatDoNotFitAreRefused) {
  const std::string whole = bytes_of(file("model.safetensors"));
  for (const std::size_t n : {0, 1, 7}) {
    put_text(file("model.safetensors"), whole.substr(0, n));
    expect_weights_refused("model.safetensors", "byte 0: header length");
  }
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX,
                                     std::uint64_t{100'000'001}, std::uint64_t{whole.size() - 7}}) {
    put_text(file("model.safetensors"),
             std::string(reinterpret_cast<const char*>(&length), 8) + whole.substr(8));
    expect_weights_refused("model.safetensors", "byte");
  }
}

TEST_F(FolderRowsTest, Rows36To43BadHeadersAreRefused) {
  const std::string good = header_of("\"U8\"", "[1]", "[0,1]");
  expect_header_refused("36", "{\"\xff\":{}}", 1, "malformed");
  expect_header_refused("36", "\xef\xbb\xbf" + good, 1, "byte order mark");
  expect_header_refused("36", good + "x", 1, "malformed");
  for (const char* header : {"[]", "null"}) expect_header_refused("37", header, 0, "expected an object");
  expect_header_refused("37", "{}", 1, "follow the last tensor");
  expect_header_refused("38",
                        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                        R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                        8, "occurs twice");
  for (const char* offsets : {"[1,0]", "[-1,0]", "[0.0,1.0]", "[\"0\",\"1\"]", "[1]", "[0,1,1]"}) {
    expect_header_refused("39", header_of("\"U8\"", "[1]", offsets), 1, "tensor 'a'");
  }
  expect_header_refused("40", header_of("\"U8\"", "[1]", "[4,5]"), 5, "hole");
  expect_header_refused("40", good, 2, "follow the last tensor");
  for (const char* shape : {"[-1]", "[1.0]", "[9223372036854775808]", "[4294967296,4294967296]",
                            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                            "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    expect_header_refused("41", header_of("\"U8\"", shape, "[0,1]"), 1, "tensor 'a'");
  }
  for (const char* dtype : {"\"f32\"", "\"F33\"", "7"}) {
    expect_header_refused("42", header_of(dtype, "[1]", "[0,4]"), 4, "tensor 'a'");
  }
  expect_header_refused("42", header_of("\"F4\"", "[3]", "[0,2]"), 2, "tensor 'a'");
  expect_header_refused("43", R"({"__metadata__":{"k":1}})", 0, "__metadata__");
  expect_header_refused("43", R"({"__metadata__":{"k":{"l":"m"}}})", 0, "__metadata__");
}

TEST_F(FolderRowsTest, Rows36And43And46UnusualHeadersLoad) {
  const std::string whole = bytes_of(file("model.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  const std::string header = whole.substr(8, length);
  const std::string data = whole.substr(8 + length);
  put_bytes(file("model.safetensors"), ByteBuilder().str("  \n" + header + " \r\n").raw(data).bytes());
  for (const auto& command : commands_on(path_)) {
    const RunResult result = sightline(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  constexpr std::size_t kBig = std::size_t{50} << 20;
  put_bytes(file("model.safetensors"),
            ByteBuilder()
                .str(R"({"__metadata__":{"k":")" + std::string(kBig, 'v') + "\"}," + header.substr(1))
                .raw(data)
                .bytes());
  for (const auto& command : commands_on(path_)) {
    const RunResult result = sightline(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_peak(result, kPeakBytes + 4 * kBig);
  }
}

TEST_F(FolderRowsTest, Row44AMillionEntriesOnOneRangeAreRefusedInLittleMemory) {
  std::string header = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})", i == 0 ? "" : ",", i);
  }
  header += "}";
  put_header(header, 16);
  const RunResult result = sightline({"info", path_});
  expect_failure(result, 65, {file("model.safetensors")});
  expect_peak(result, kPeakBytes + 4 * header.size());
}

TEST_F(FolderRowsTest, Rows38And45ShardsLieInTheFolderAndRepeatNothing) {
  std::filesystem::rename(file("model.safetensors"), file("m1.safetensors"));
  std::filesystem::copy(file("m1.safetensors"), folder_.file("outside.safetensors"));
  std::filesystem::create_symlink(folder_.file("outside.safetensors"), file("link.safetensors"));
  std::filesystem::create_symlink("loop.safetensors", file("loop.safetensors"));
  for (const char* name : {"../outside.safetensors", "/etc/passwd", "link.safetensors", "loop.safetensors",
                           "absent.safetensors", "..", "", "m1.safetensors\\u0000"}) {
    put_text(file("model.safetensors.index.json"), fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    SCOPED_TRACE(name);
    expect_weights_refused("model.safetensors.index.json", "weight_map: shard");
  }
  std::filesystem::copy(file("m1.safetensors"), file("m2.safetensors"));
  put_text(file("model.safetensors.index.json"),
           R"({"weight_map":{"a":"m1.safetensors","b":"m2.safetensors"}})");
  EXPECT_EQ(sightline({"info", path_}).exit_code, 65);
  for (const char* index : {"", "{", "[]", R"({"weight_map":3})", R"({"weight_map":{}})"}) {
    put_text(file("model.safetensors.index.json"), index);
    expect_weights_refused("model.safetensors.index.json", "");
  }
}

TEST_F(FolderRowsTest, Row32EveryTruncationOfTheWeightsIsRefused) {
  const std::string path = file("model.safetensors");
  ASSERT_TRUE(read_model_info(path_));
  for (auto size = static_cast<std::int64_t>(std::filesystem::file_size(path)) - 1; size >= 0; --size) {
    // In the data every length meets the same comparison; each 16th, and each of the header.
    if (size > 8192 && size % 16 != 0) continue;
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
    const auto info = read_model_info(path_);
    ASSERT_FALSE(info) << size << " bytes";
    ASSERT_EQ(info.error().kind, ErrorKind::kInvalidContent) << size << ": " << info.error().message;
    ASSERT_NE(info.error().message.find(path), std::string::npos) << info.error().message;
  }
}

TEST_F(FolderRowsTest, FilesOfAFolderThatAreMissingOrSpecialAreNoInput) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::rename(file(name), folder_.file("aside"));
    expect_failure(sightline({"info", path_}), 66, {path_});
    ASSERT_EQ(::mkfifo(file(name).c_str(), 0600), 0);
    expect_failure(sightline({"info", path_}), 66, {file(name), "not a regular file"});
    std::filesystem::remove(file(name));
    std::filesystem::create_directory(file(name));
    expect_failure(sightline({"info", path_}), 66, {file(name), "not a regular file"});
    std::filesystem::remove(file(name));
    std::filesystem::rename(folder_.file("aside"), file(name));
  }
  ASSERT_EQ(sightline({"info", path_}).exit_code, 0);
  std::filesystem::remove(file("tokenizer.json"));
  expect_failure(sightline({"tokenize", "-m", path_, "text"}), 66, {path_, "no tokenizer.json"});
}

TEST_F(FolderRowsTest, BadConfigsAreRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\xff"), std::string(1'000'000, '['),
        std::string("{\"model_type\": \"llama\"}"), std::string("{\"a\": 1, \"a\": 2}")}) {
    put_text(file("config.json"), text);
    expect_weights_refused("config.json", "");
  }
  put_text(file("config.json"), std::string((std::size_t{4} << 20) + 1, ' '));
  expect_weights_refused("config.json", "over the limit");
}

TEST_F(FolderRowsTest, Row47WhatIsNoTokenizerIsRefused) {
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  for (const std::string& text :
       {std::string(), std::string("not JSON"), std::string("null"), std::string("{}"), std::string("\xff"),
        std::string(1'000'000, '['), objects, std::string("{\"model\": \"\\ud800\"}")}) {
    expect_tokenizer_text_refused(text, "");
  }
  std::filesystem::resize_file(file("tokenizer.json"), std::uintmax_t{200} << 20);  // a hole on the disk
  const RunResult result = sightline({"tokenize", "-m", path_, "text"});
  expect_failure(result, 65, {file("tokenizer.json"), "over the limit of 134217728"});
  expect_peak(result, kPeakBytes);
}

TEST_F(FolderRowsTest, Rows48To50BadTokenizersAreRefusedByField) {
  using text::member;
  const auto with_merge = [](const Json& merge) {
    Json json = text::small_byte_json();
    member(member(json, "model"), "merges") = JsonArray{"h e", merge};
    return json;
  };
  for (const Json& merge : {Json("h zq"), Json("hello hello"), Json("h"), Json("h e l"),
                            Json(JsonArray{"h", "e", "l"}), Json(5)}) {
    expect_tokenizer_refused(with_merge(merge), "model.merges[1]");
  }
  for (const Json& id : {Json(70), Json(-1), Json(std::int64_t{1} << 31), Json(1'000'265)}) {
    Json json = text::small_byte_json();
    member(member(json, "model"), "vocab").set("fresh", id);
    expect_tokenizer_refused(json, "model.vocab");
  }
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"pre_tokenizer", R"({"type": "BertPreTokenizer"})", "unsupported type 'BertPreTokenizer'"},
      {"normalizer", R"({"type": "Lowercase"})", "unsupported type 'Lowercase'"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       "unsupported pattern"},
      {"decoder", R"({"type": "WordPiece"})", "unsupported type 'WordPiece'"},
      {"model", R"({"type": "Unigram", "vocab": []})", "unsupported type 'Unigram'"},
  };
  for (const auto& [key, value, message] : rows) {
    Json json = text::small_byte_json();
    member(json, key) = parse_json(value, "test").value();
    expect_tokenizer_refused(json, message);
  }
}

TEST_F(FolderRowsTest, Row51AddedTokens) {
  Json json = text::small_byte_json();
  text::member(json, "added_tokens").push_back(JsonObject{{"id", 300}, {"content", ""}});
  expect_tokenizer_refused(json, "added_tokens");
  json = text::small_byte_json();
  Json& added = text::member(json, "added_tokens");
  for (int i = 0; i < 100'000; ++i) {
    added.push_back(JsonObject{{"id", 300 + i}, {"content", std::string(12, 'a') + std::to_string(i)}});
  }
  put_text(file("tokenizer.json"), json.dump());
  const RunResult result = sightline({"tokenize", "-m", path_, "aaaaaaaaaaaa99999"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "100299\n");
  // More tokens than the embedding table has rows.
  expect_failure(sightline({"info", path_}), 65, {path_, "the embedding table"});
}

}  // namespace
}  // namespace sightline::testing
