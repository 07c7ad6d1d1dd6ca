#include "text/rust_bridge.h"

#include <new>

namespace sightline::text {
namespace {

// Rust must not be unwound by a C++ exception, so callbacks note a failure instead of throwing.
template <typename T>
struct NumberSink {
  std::vector<T> items;
  bool failed = false;
};

void take_bytes(void* context, const uint8_t* data, size_t len, bool& failed) {
  try {
    static_cast<std::string*>(context)->append(reinterpret_cast<const char*>(data), len);
  } catch (const std::bad_alloc&) {
    failed = true;
  }
}

}  // namespace

sl_sink StringSink::get() {
  return {this, [](void* context, const uint8_t* data, size_t len) {
            auto* self = static_cast<StringSink*>(context);
            take_bytes(&self->text_, data, len, self->failed_);
          }};
}

std::string StringSink::take() {
  if (failed_) throw std::bad_alloc();
  return std::move(text_);
}

tl::unexpected<Error> rust_error(int32_t status, std::string_view what, StringSink& message) {
  const ErrorKind kind = status == 2   ? ErrorKind::kInternal
                         : status == 3 ? ErrorKind::kOutOfMemory
                                       : ErrorKind::kInvalidContent;
  return fail(kind, "{}: {}", what, message.take());
}

Result<Regex> Regex::compile(std::string_view pattern) {
  sl_regex* handle = nullptr;
  StringSink message;
  const int32_t status = sl_regex_new(as_sl_text(pattern), &handle, message.get());
  if (status != 0) return rust_error(status, "regular expression", message);
  Regex regex;
  regex.handle_ = std::shared_ptr<sl_regex>(handle, sl_regex_free);
  return regex;
}

Result<std::vector<ByteRange>> Regex::find_all(std::string_view text) const {
  NumberSink<ByteRange> sink;
  StringSink message;
  const int32_t status = sl_regex_find(
      handle_.get(), as_sl_text(text), &sink,
      [](void* context, const uint64_t* numbers, size_t num) {
        auto* out = static_cast<NumberSink<ByteRange>*>(context);
        try {
          out->items.reserve(num);
          for (size_t i = 0; i < num; ++i) out->items.push_back({numbers[2 * i], numbers[2 * i + 1]});
        } catch (const std::bad_alloc&) {
          out->failed = true;
        }
      },
      message.get());
  if (status != 0) return rust_error(status, "regular expression", message);
  if (sink.failed) throw std::bad_alloc();
  return std::move(sink.items);
}

Result<Matcher> Matcher::build(std::span<const std::string> tokens) {
  Matcher matcher;
  if (tokens.empty()) return matcher;
  std::vector<sl_text> texts;
  texts.reserve(tokens.size());
  for (const std::string& token : tokens) texts.push_back(as_sl_text(token));
  sl_matcher* handle = nullptr;
  StringSink message;
  const int32_t status = sl_matcher_new(texts.data(), texts.size(), &handle, message.get());
  if (status != 0) return rust_error(status, "matcher of added tokens", message);
  matcher.handle_ = std::shared_ptr<sl_matcher>(handle, sl_matcher_free);
  return matcher;
}

std::vector<Matcher::Match> Matcher::find(std::string_view text, bool every_start) const {
  if (!handle_ || text.empty()) return {};
  NumberSink<Match> sink;
  StringSink message;
  const int32_t status = sl_matcher_find(
      handle_.get(), as_sl_text(text), every_start, &sink,
      [](void* context, const uint64_t* numbers, size_t num) {
        auto* out = static_cast<NumberSink<Match>*>(context);
        try {
          out->items.reserve(num);
          for (size_t i = 0; i < num; ++i) {
            out->items.push_back({{numbers[3 * i], numbers[3 * i + 1]}, numbers[3 * i + 2]});
          }
        } catch (const std::bad_alloc&) {
          out->failed = true;
        }
      },
      message.get());
  if (status != 0 || sink.failed) throw std::bad_alloc();  // searching has no other way to fail
  return std::move(sink.items);
}

std::vector<Matcher::Match> Matcher::find_all(std::string_view text) const { return find(text, false); }

std::vector<Matcher::Match> Matcher::find_every_start(std::string_view text) const {
  return find(text, true);
}

Result<std::string> normalize(std::string_view text, NormalForm form) {
  StringSink result;
  StringSink message;
  const int32_t status =
      sl_normalize(as_sl_text(text), static_cast<int32_t>(form), result.get(), message.get());
  if (status != 0) return rust_error(status, "Unicode normalisation", message);
  return result.take();
}

}  // namespace sightline::text
