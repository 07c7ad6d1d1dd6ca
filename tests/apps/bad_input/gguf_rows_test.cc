// Rows 1 to 20, 30, 32 and 34: files that are no GGUF, through every command that opens a model.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "apps/bad_input/program.h"
#include "formats/byte_builder.h"
#include "sightline/formats/gguf_writer.h"
#include "sightline/model/model_text.h"

namespace sightline::testing {
namespace {

using testing_formats::ByteBuilder;
using testing_formats::gguf_start;
using testing_formats::one_key;
using testing_formats::one_tensor;
using testing_formats::table_row;

struct BadFile {
  const char* row;
  ByteBuilder bytes;
  const char* named;  // what the message says besides the file
};

constexpr std::uint64_t kOne = 1;
constexpr std::uint64_t kHuge = 0x7FFFFFFFFFFFFFC0ULL;

std::vector<BadFile> headers() {
  std::vector<BadFile> rows;
  for (const std::size_t n : {0, 1, 3, 4, 7, 8, 23}) {
    ByteBuilder start;
    start.raw(std::string("GGUF\x03\0\0\0", 8).substr(0, std::min<std::size_t>(n, 8)));
    rows.push_back({"1", n > 8 ? start.zeros(n - 8) : start, "byte"});
  }
  for (const char* magic : {"GGML", "FUGG", "This is a text file"}) {
    rows.push_back({"2", ByteBuilder().raw(magic).zeros(64), "byte 0: magic"});
  }
  for (const std::uint32_t version : {0U, 1U, 4U}) {
    rows.push_back({"3", gguf_start(0, 0, version), "byte 4: version: expected 2 or 3"});
  }
  rows.push_back({"3", gguf_start(0, 0, 0x03000000U), "big-endian"});
  for (const std::uint64_t n : {UINT64_MAX, kOne << 63, kOne << 32, std::uint64_t{65537}}) {
    rows.push_back({"4", gguf_start(0, n).zeros(8), "byte 16: key count"});
    rows.push_back({"5", gguf_start(n, 0).zeros(8), "byte 8: tensor count"});
  }
  return rows;
}

std::vector<BadFile> keys() {
  const ByteBuilder value = ByteBuilder().u8(1);
  std::vector<BadFile> rows = {
      {"6", one_key("", 0, value), "byte 24: key name"},
      {"6", one_key(std::string(65536, 'k'), 0, value), "over the limit of 65535"},
      {"6", gguf_start(0, 1).u64(UINT64_MAX).zeros(32), "byte 24: key name: length"},
      {"6", one_key("caf\xc3\xa9", 0, value), "\\xc3\\xa9"},
      {"6", one_key("a\x1b[31m\n", 0, value), "a\\x1b[31m\\x0a"},
      {"7", one_key("k", 8, ByteBuilder().u64(5).raw("text")), "key 'k': length"},
      {"7", one_key("k", 8, ByteBuilder().u64(kOne << 40).raw("text")), "key 'k': length"},
      {"8", one_key("k", 13, ByteBuilder().zeros(32)), "unknown value type"},
      {"8", one_key("k", UINT32_MAX, ByteBuilder().zeros(32)), "unknown value type"},
      {"8", one_key("k", 9, ByteBuilder().u32(9).u64(1).u32(0).u64(1).u8(1)), "arrays of arrays"},
      {"9", one_key("k", 9, ByteBuilder().u32(10).u64(kOne << 61).zeros(64)), "64 bytes left"},
      {"9", one_key("k", 9, ByteBuilder().u32(8).u64(kOne << 61).zeros(64)), "64 bytes left"},
      {"10", one_key("k", 7, ByteBuilder().u8(2)), "byte 37: key 'k': bool must be 0 or 1"},
      {"11", one_key("general.alignment", 5, ByteBuilder().u32(32)), "got i32 32"},
      {"11", one_key("general.alignment", 8, ByteBuilder().str("32")), "got string"},
  };
  for (const std::uint32_t value_of : {0U, 3U, 1U << 31}) {
    rows.push_back({"11", one_key("general.alignment", 4, ByteBuilder().u32(value_of)), "power of two"});
  }
  for (const char* key : {"general.alignment", "k"}) {
    ByteBuilder twice = gguf_start(0, 2);
    for (int i = 0; i < 2; ++i) twice.str(key).u32(4).u32(32);
    rows.push_back({"11, 12", twice, "occurs twice"});
  }
  return rows;
}

std::vector<BadFile> tensors() {
  std::vector<BadFile> rows = {
      {"12",
       gguf_start(2, 0)
           .append(table_row("t", {8}, 0, 0))
           .append(table_row("t", {8}, 0, 32))
           .pad(32)
           .zeros(64),
       "tensor name 't' occurs twice"},
      {"13", gguf_start(1, 0).str("t").u32(5).zeros(256), "n_dims"},
      {"13", gguf_start(1, 0).str("t").u32(UINT32_MAX).zeros(256), "n_dims"},
      {"16",
       gguf_start(2, 0)
           .append(table_row("a", {kHuge}, 24, 0))
           .append(table_row("b", {kHuge}, 24, kHuge))
           .pad(32)
           .zeros(64),
       "past the end of the file"},
      {"18", one_tensor(table_row("t", {33, 32}, 2, 0), 65536), "split a block"},
      {"20", one_tensor(table_row("t", {5}, 0, 0), 19), "past the end of the file"},
  };
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{kOne << 32, kOne << 32},
                                                  {kOne << 62},
                                                  {kOne << 63},
                                                  {(kOne << 42) + 1, 1152}}) {
    rows.push_back({"14", one_tensor(table_row("t", shape, 0, 0), 64), "tensor 't'"});
  }
  for (const std::uint32_t type : {4U, 31U, 255U, UINT32_MAX}) {
    rows.push_back({"17", one_tensor(table_row("t", {32}, type, 0), 256), "type"});
  }
  for (const std::uint64_t offset : {std::uint64_t{33}, std::uint64_t{0}, kOne << 40, UINT64_MAX - 31}) {
    rows.push_back({"19",
                    gguf_start(2, 0)
                        .append(table_row("a", {4}, 0, 0))
                        .append(table_row("b", {4}, 0, offset))
                        .pad(32)
                        .zeros(256),
                    "tensor 'b': offset"});
  }
  return rows;
}

class GgufRowsTest : public ::testing::Test {
 protected:
  void expect_all_refused(const std::vector<BadFile>& rows) {
    const std::string path = folder_.file("bad.gguf");
    for (const BadFile& row : rows) {
      SCOPED_TRACE(std::string("row ") + row.row + ": " + row.named);
      put_bytes(path, row.bytes.bytes());
      expect_refused(path, row.named);
    }
  }
  TempFolder folder_;
};

TEST_F(GgufRowsTest, BadHeadersAreRefused) { expect_all_refused(headers()); }
TEST_F(GgufRowsTest, BadKeysAreRefused) { expect_all_refused(keys()); }
TEST_F(GgufRowsTest, BadTensorsAreRefused) { expect_all_refused(tensors()); }

TEST_F(GgufRowsTest, Row2SpecialFilesAreNoInputAndNothingHangs) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder_.path() / "loop");
  std::filesystem::create_symlink("nowhere", folder_.path() / "dangling");
  std::filesystem::create_directory(folder_.path() / "empty");
  const std::string in_file = folder_.file("text");
  put_text(in_file, "text");
  for (const std::string& path :
       {fifo, std::string("/dev/zero"), std::string("/dev/tty"), folder_.file("loop"),
        folder_.file("dangling"), folder_.file("absent"), in_file + "/below"}) {
    expect_refused(path, "", 66);
  }
  EXPECT_EQ(sightline({"info", folder_.file("empty")}).exit_code, 66);
  EXPECT_EQ(sightline({"generate", "-m", folder_.file("empty")}).exit_code, 66);
  EXPECT_EQ(sightline({"tokenize", "-m", folder_.file("empty"), "x"}).exit_code, 66);
}

TEST_F(GgufRowsTest, Row15EmptyDimensionsAreRefusedWhereAModelNeedsThem) {
  const TinyModel tiny;
  const std::string path = folder_.file("m.gguf");
  for (const int dimension : {0, 1}) {
    TestModel model = tiny.model;
    TestTensor& gate = model.tensors.at("layer.0.gate.weight");
    gate.shape[static_cast<std::size_t>(dimension)] = 0;
    gate.values.clear();
    write_llama_gguf(path, model, tiny.metadata);
    for (const auto& command : commands_on(path)) {
      const RunResult result = sightline(command);
      if (command[0] == "tokenize") {
        EXPECT_EQ(result.exit_code, 0) << result.err;  // needs no weights
      } else {
        expect_failure(result, 65, {path, "'blk.0.ffn_gate.weight'", "[40, 24]"});
      }
    }
  }
}

TEST_F(GgufRowsTest, Row20TrailingBytesWarnAndLoad) {
  const TinyModel tiny;
  const std::string path = folder_.file("m.gguf");
  tiny.write(path);
  const std::string whole = bytes_of(path);
  put_text(path, whole + std::string(33, 'x'));
  const RunResult info = sightline({"info", path});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_NE(info.out.find("33 bytes follow"), std::string::npos) << info.out;
  EXPECT_EQ(sightline(commands_on(path)[2]).exit_code, 0);
  put_text(path, whole.substr(0, whole.size() - 1));
  expect_refused(path, "past the end of the file");
}

TEST_F(GgufRowsTest, Row30ManyTensorsAreRefusedInMemoryLikeTheFile) {
  constexpr std::uint64_t kCount = 100000;
  ByteBuilder b = gguf_start(kCount, 0);
  for (std::uint64_t i = 0; i < kCount; ++i) b.append(table_row(fmt::format("t{}", i), {1}, 0, 32 * i));
  b.pad(32).zeros(32 * kCount);
  const std::string path = folder_.file("many.gguf");
  put_bytes(path, b.bytes());
  for (const auto& command : commands_on(path)) {
    const RunResult result = sightline(command);
    expect_failure(result, 65, {path});
    expect_peak(result, 2 * b.size() + kPeakBytes);
  }
}

// Every cut of a model that loads, without a process for each.
TEST_F(GgufRowsTest, Row32EveryTruncationOfAModelIsRefused) {
  ModelSpec spec = small_llama_spec();
  spec.model_dim = 4;
  spec.tied_head = true;
  spec.layers.resize(1);
  spec.layers[0].attention.heads = {1, 1, 4, 4};
  spec.layers[0].attention.rope.rotary_dim = 4;
  spec.layers[0].ffn.ffn_dim = 4;
  const TinyModel tiny(spec);
  const std::string path = folder_.file("m.gguf");
  tiny.write(path);
  ASSERT_EQ(sightline(commands_on(path)[2]).exit_code, 0) << sightline(commands_on(path)[2]).err;
  ASSERT_TRUE(read_model_info(path) && load_model_text(path));
  for (auto size = static_cast<std::int64_t>(std::filesystem::file_size(path)) - 1; size >= 0; --size) {
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
    const auto info = read_model_info(path);
    const auto text = load_model_text(path);
    ASSERT_FALSE(info || text) << size << " bytes";
    for (const Error& error : {info.error(), text.error()}) {
      ASSERT_EQ(error.kind, ErrorKind::kInvalidContent) << size << ": " << error.message;
      ASSERT_NE(error.message.find(path), std::string::npos) << error.message;
      ASSERT_NE(error.message.find("byte"), std::string::npos) << error.message;
    }
  }
}

TEST_F(GgufRowsTest, Row34SplitSetsWithAWrongPartAreRefused) {
  const auto part = [&](int no, int count, int num_tensors, int file_no) {
    const Entries metadata = {{"general.architecture", std::string("llama"), 0},
                              {"split.no", static_cast<std::uint16_t>(no), 0},
                              {"split.count", static_cast<std::uint16_t>(count), 0},
                              {"split.tensors.count", std::int32_t{num_tensors}, 0}};
    const std::string path = folder_.file(fmt::format("m-{:05}-of-{:05}.gguf", file_no, 2));
    auto writer = create_gguf(path, metadata, {{fmt::format("t{}", no), DataType::kF32, {1}}}, true);
    const float value = 1;
    ASSERT_TRUE(writer && writer->append_f32({&value, 1}) && writer->commit());
  };
  const std::string first = folder_.file("m-00001-of-00002.gguf");
  const std::string second = folder_.file("m-00002-of-00002.gguf");
  part(0, 2, 2, 1);
  expect_refused(first, "part 2 of 2");  // missing
  part(1, 2, 2, 2);
  expect_refused(second, "open the first part");
  const auto expect_second_refused = [&](const char* key) {
    for (const auto& command : commands_on(first))
      expect_failure(sightline(command), 65, {second, "byte", key});
  };
  part(0, 2, 2, 2);
  expect_second_refused("split.no");  // repeated
  part(1, 3, 2, 2);
  expect_second_refused("split.count");
  part(1, 2, 3, 2);
  expect_second_refused("split.tensors.count");
}

}  // namespace
}  // namespace sightline::testing
