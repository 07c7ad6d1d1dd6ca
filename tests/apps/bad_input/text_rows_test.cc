// Rows 52 to 55: texts and chat templates.
#include <gtest/gtest.h>

#include "apps/bad_input/program.h"

namespace sightline::testing {
namespace {

class TextRowsTest : public ::testing::Test {
 protected:
  TextRowsTest() { tiny_.write(model_); }
  RunResult tokenize_file(const std::string& text, std::vector<std::string> more = {}) {
    put_text(file_, text);
    more.insert(more.begin(), {"tokenize", "-m", model_, "-f", file_});
    return sightline(more);
  }
  void put_template(const std::string& text) { tiny_.write_with(model_, "tokenizer.chat_template", text); }

  TempFolder folder_;
  TinyModel tiny_;
  std::string model_ = folder_.file("m.gguf");
  std::string file_ = folder_.file("text");
};

std::string times(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST_F(TextRowsTest, Row52AMillionCharactersOfOneKindComeBack) {
  for (const std::string& text :
       {std::string(1'000'000, 'A'), std::string(1'000'000, '\n'),
        std::string("e").append(times("\xCC\x81", 1'000'000)), times("a\xD0\xB1\xE4\xB8\xAD", 333'333)}) {
    const RunResult ids = tokenize_file(text);
    ASSERT_EQ(ids.exit_code, 0) << ids.err;
    expect_peak(ids, std::size_t{256} << 20);
    const RunResult back = tokenize_file(ids.out, {"--decode"});
    ASSERT_EQ(back.exit_code, 0) << back.err;
    EXPECT_TRUE(back.out == text + "\n") << back.out.size();
  }
}

TEST_F(TextRowsTest, Row53TextsThatAreNoUtf8AreRefusedWithFileAndOffset) {
  const std::string zero("h\0e", 3);
  for (const std::string& good : {zero, std::string("h\xF4\x8F\xBF\xBF")}) {
    const RunResult ids = tokenize_file(good);
    EXPECT_EQ(ids.exit_code, 0) << ids.err;
    EXPECT_EQ(tokenize_file(ids.out, {"--decode"}).out, good + "\n");
  }
  // A surrogate, an overlong zero and slash, U+110000, a lone continuation, a character cut short.
  for (const char* bad :
       {"\xED\xA0\x80", "\xC0\x80", "\xE0\x80\xAF", "\xF4\x90\x80\x80", "\x80", "\xE4\xB8", "\xFF"}) {
    const std::string text = std::string("he") + bad;
    expect_failure(tokenize_file(text), 65, {file_, "UTF-8", "offset 2"});
    const std::string lines = "he\n" + text + "\n";
    for (const char* option : {"-f", "--batch"}) {
      put_text(file_, lines);
      expect_failure(sightline({"generate", "-m", model_, "-n", "1", option, file_}), 65, {file_, "UTF-8"});
    }
    expect_failure(sightline({"eval", "loss", "-m", model_, "-f", file_}), 65, {file_, "UTF-8", "offset 5"});
    expect_failure(sightline({"generate", "-m", model_, "-n", "1", "-p", text}), 65,
                   {"--prompt", "offset 2"});
    expect_failure(sightline({"tokenize", "-m", model_, text}), 65, {"TEXT", "offset 2"});
    expect_failure(sightline({"tokenize", "-m", model_}, {.stdin_text = text}), 65,
                   {"standard input", "offset 2"});
  }
}

TEST_F(TextRowsTest, IdsThatAreNoneAreWrongUsage) {
  for (const char* ids : {"1,x", "1 2 -3", "99999999999999999999", "280", "1;2", "0x10", "1.0"}) {
    expect_failure(tokenize_file(ids, {"--decode"}), 2, {file_});
  }
  for (const char* ids : {"1,x", "", ",", "1,", "1,,2", "-1", "280", "99999999999999999999", " 1"}) {
    expect_failure(sightline({"generate", "-m", model_, "-n", "1", "--tokens", ids}), 2, {"token"});
  }
}

TEST_F(TextRowsTest, TextsThatAreNoRegularFileAreNoInput) {
  for (const std::string& path :
       {folder_.file("absent"), folder_.path().string(), std::string("/dev/zero")}) {
    expect_failure(sightline({"tokenize", "-m", model_, "-f", path}), 66, {path});
    expect_failure(sightline({"generate", "-m", model_, "-f", path}), 66, {path});
    expect_failure(sightline({"generate", "-m", model_, "--batch", path}), 66, {path});
    expect_failure(sightline({"eval", "loss", "-m", model_, "-f", path}), 66, {path});
  }
  put_text(file_, "");
  std::filesystem::resize_file(file_, (std::uintmax_t{64} << 20) + 1);
  expect_failure(sightline({"tokenize", "-m", model_, "-f", file_}), 65, {file_, "over the limit"});
  expect_failure(sightline({"generate", "-m", model_, "-f", file_}), 65, {file_, "over the limit"});
}

TEST_F(TextRowsTest, Row54TemplatesThatDoNotEndOrNestOrSwellAreRefused) {
  for (const std::string& text :
       {std::string("{% for i in range(1000000000) %}x{% endfor %}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), times("{% if true %}", 10'000),
        times("{% if true %}", 10'000) + times("{% endif %}", 10'000),
        std::string("{{ ") + times("(", 10'000) + "1" + times(")", 10'000) + " }}",
        std::string("{% for i in range(1000000) %}{{ 'x' * 100000 }}{% endfor %}"),
        std::string("{{ messages[0].content * 1000000000 }}"), std::string("{{ raise_exception('no') }}"),
        std::string("{% endfor %}"), std::string("{{"), std::string("\xff"), times("x", 200'000)}) {
    SCOPED_TRACE(text.substr(0, 60));
    put_template(text);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"tokenize", "-m", model_, "h"},
          {"generate", "-m", model_, "-n", "1", "--chat", "-p", "h"}}) {
      const RunResult result = sightline(command);
      expect_failure(result, 65, {model_, "chat template"});
      expect_peak(result, std::size_t{128} << 20);
    }
    EXPECT_EQ(sightline({"info", model_}).exit_code, 0);  // runs no template
  }
}

TEST_F(TextRowsTest, Row55ControlTokensWrittenByTheUserAreText) {
  put_template("{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}");
  const auto prompt_ids = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "-m", model_, "-n", "0", "--json"});
    const RunResult result = sightline(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto json = parse_json(result.out, "generate");
    return json ? json->find("prompt_ids")->dump() : result.out;
  };
  const auto count = [](const std::string& ids, const std::string& id) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = ids.find(id, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  const std::string chat = prompt_ids({"--chat", "-p", "h</s><s>e"});
  EXPECT_TRUE(chat.starts_with("[1,") && chat.ends_with(",2]")) << chat;
  EXPECT_EQ(count(chat, ",1,") + count(chat, ",2,"), 0U) << chat;
  const std::string plain = prompt_ids({"-p", "h</s>e"});
  EXPECT_EQ(count(plain, ",2,"), 0U) << plain;
  EXPECT_EQ(count(prompt_ids({"--special", "-p", "h</s>e"}), ",2,"), 1U) << "only where asked";
}

}  // namespace
}  // namespace sightline::testing
