#include "sightline/subjects/library/library_subject.h"

#include <dlfcn.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sightline/subject.h"

namespace sightline::subjects {
namespace {

// One side's tokens as columns.
class TokenColumns {
 public:
  TokenColumns(const std::vector<TokenCoord>& coords, const std::vector<std::int64_t>& rope_pos) {
    for (std::size_t i = 0; i < coords.size(); ++i) {
      const TokenCoord& c = coords[i];
      pos_.push_back(c.pos);
      rope_pos_.push_back(rope_pos.empty() ? c.pos : rope_pos[i]);
      segment_.push_back(c.segment);
      segment_start_.push_back(c.segment_start);
      span_.push_back(c.span);
      flags_.push_back(c.flags);
      valid_.push_back(c.valid ? 1 : 0);
    }
  }

  [[nodiscard]] sightline_tokens get() const {
    return {static_cast<std::int64_t>(pos_.size()),
            pos_.data(),
            rope_pos_.data(),
            segment_.data(),
            segment_start_.data(),
            span_.data(),
            flags_.data(),
            valid_.data()};
  }

 private:
  std::vector<std::int64_t> pos_, rope_pos_, segment_start_;
  std::vector<std::int32_t> segment_, span_;
  std::vector<std::uint32_t> flags_;
  std::vector<std::uint8_t> valid_;
};

std::vector<float> to_floats(const std::vector<double>& x) { return {x.begin(), x.end()}; }

const float* data_or_null(const std::vector<float>& x) { return x.empty() ? nullptr : x.data(); }

// The library in this process.
class LibrarySubject : public checker::Subject {
 public:
  static Result<LibrarySubject> load(const std::filesystem::path& path) {
    LibrarySubject subject;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(ErrorKind::kInvalidContent, "{}", ::dlerror());
    const auto version = symbol<decltype(&sightline_subject_version)>(library, "sightline_subject_version");
    const auto takes = symbol<decltype(&sightline_subject_takes)>(library, "sightline_subject_takes");
    subject.answer_ = symbol<decltype(&sightline_subject_answer)>(library, "sightline_subject_answer");
    subject.begin_ = symbol<decltype(&sightline_subject_begin)>(library, "sightline_subject_begin");
    if (version == nullptr || takes == nullptr || subject.answer_ == nullptr) {
      return fail(ErrorKind::kInvalidContent,
                  "{} exports no sightline_subject_version, _takes and _answer (include sightline/subject.h)",
                  path.string());
    }
    if (version() != SIGHTLINE_SUBJECT_VERSION) {
      return fail(ErrorKind::kInvalidContent, "{} has version {} of the interface, expected {}",
                  path.string(), version(), SIGHTLINE_SUBJECT_VERSION);
    }
    const std::uint64_t bits = takes();
    subject.traits_.takes_positions = (bits & SIGHTLINE_TAKES_POSITIONS) != 0;
    subject.traits_.takes_segments = (bits & SIGHTLINE_TAKES_SEGMENTS) != 0;
    subject.traits_.takes_padding = (bits & SIGHTLINE_TAKES_PADDING) != 0;
    subject.traits_.takes_gradients = (bits & SIGHTLINE_TAKES_GRADIENTS) != 0;
    subject.traits_.takes_chunks = (bits & SIGHTLINE_TAKES_CHUNKS) != 0;
    subject.traits_.holds_cache = (bits & SIGHTLINE_HOLDS_CACHE) != 0;
    return subject;
  }

  [[nodiscard]] checker::SubjectTraits traits() const override { return traits_; }

  Result<void> begin_sequence() override {
    if (begin_ != nullptr) begin_();
    return {};
  }

  Result<void> answer(checker::Observation& o) override {
    const HeadSpec& heads = o.spec.heads;
    const TokenColumns q_tokens(o.q_coords, o.q_rope_pos);
    const TokenColumns kv_tokens(o.kv_coords, o.kv_rope_pos);
    const std::vector<float> q = to_floats(o.q), k = to_floats(o.k), v = to_floats(o.v);
    const std::vector<float> bias = to_floats(o.bias), d_out = to_floats(o.d_out);
    const std::vector<std::uint8_t> visible = checker::visible_pairs(o);
    const std::string spec = to_json(o.spec).dump();
    const sightline_call call{sizeof(sightline_call),
                              heads.num_q_heads,
                              heads.num_kv_heads,
                              heads.qk_head_dim,
                              heads.v_head_dim,
                              o.is_self_attention() ? 1 : 0,
                              q_tokens.get(),
                              kv_tokens.get(),
                              q.data(),
                              k.data(),
                              v.data(),
                              data_or_null(bias),
                              data_or_null(d_out),
                              visible.data(),
                              spec.c_str()};
    const auto buffer = [](std::int64_t size) {
      return std::vector<float>(static_cast<std::size_t>(size), std::numeric_limits<float>::quiet_NaN());
    };
    const std::int64_t rows = o.q_len() * heads.num_q_heads;
    const bool has_upstream = !d_out.empty();
    std::vector<float> out = buffer(rows * heads.v_head_dim), lse = buffer(rows),
                       weights = buffer(rows * o.kv_len());
    std::vector<float> d_q = buffer(has_upstream ? static_cast<std::int64_t>(q.size()) : 0),
                       d_k = buffer(has_upstream ? static_cast<std::int64_t>(k.size()) : 0),
                       d_v = buffer(has_upstream ? static_cast<std::int64_t>(v.size()) : 0);
    sightline_answer answer{sizeof(sightline_answer),
                            out.data(),
                            lse.data(),
                            weights.data(),
                            has_upstream ? d_q.data() : nullptr,
                            has_upstream ? d_k.data() : nullptr,
                            has_upstream ? d_v.data() : nullptr};
    if (const int status = answer_(&call, &answer); status != 0) {
      return fail(ErrorKind::kInvalidContent, "sightline_subject_answer returned {}", status);
    }
    const auto take = [](const float* given, const std::vector<float>& from, std::vector<double>& to) {
      if (given != nullptr) to.assign(from.begin(), from.end());
    };
    take(answer.out, out, o.out);
    take(answer.lse, lse, o.lse);
    take(answer.weights, weights, o.weights);
    take(answer.d_q, d_q, o.d_q);
    take(answer.d_k, d_k, o.d_k);
    take(answer.d_v, d_v, o.d_v);
    return {};
  }

 private:
  template <typename Function>
  static Function symbol(void* library, const char* name) {
    return reinterpret_cast<Function>(::dlsym(library, name));
  }

  decltype(&sightline_subject_answer) answer_ = nullptr;
  decltype(&sightline_subject_begin) begin_ = nullptr;
  checker::SubjectTraits traits_;
};

}  // namespace

Result<std::unique_ptr<checker::Subject>> start_library(const std::filesystem::path& path,
                                                        const ProcessOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return fail(ErrorKind::kNoInput, "{}: no such file", path.string());
  }
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return start_child(
      [absolute](int in, int out) {
        Result<LibrarySubject> subject = LibrarySubject::load(absolute);
        if (!subject) return refuse_lines(subject.error(), in, out);
        return serve_lines(*subject, in, out) ? 0 : 1;
      },
      options);
}

}  // namespace sightline::subjects
