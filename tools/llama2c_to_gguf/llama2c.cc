#include "llama2c.h"

#include <array>
#include <cstring>

#include "sightline/base/checked.h"
#include "sightline/base/file.h"

namespace sightline::llama2c {

namespace {

constexpr std::uint64_t kHeaderBytes = 7 * sizeof(std::int32_t);
constexpr std::uint32_t kNewMagic = 0x616b3432;  // "ak42": versions 1 and 2 of the format
constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;
constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{64} << 20;
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581

Result<Checkpoint> read_header(const InputFile& file) {
  std::array<std::int32_t, 7> fields{};
  SIGHTLINE_CHECK(file.read_at(0, std::as_writable_bytes(std::span(fields))));
  if (static_cast<std::uint32_t>(fields[0]) == kNewMagic) {
    return fail(ErrorKind::kInvalidContent,
                "{}: byte 0: a llama2.c file of version 1 or 2; only version 0 is read", file.name());
  }
  constexpr std::array kNames{"dim",        "hidden_dim", "n_layers", "n_heads",
                              "n_kv_heads", "vocab_size", "seq_len"};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::int64_t value = i == 5 ? std::abs(static_cast<std::int64_t>(fields[i])) : fields[i];
    if (value < 1 || value > kMaxSize) {
      return fail(ErrorKind::kInvalidContent, "{}: byte {}: {} = {}, expected 1 to {}", file.name(), 4 * i,
                  kNames[i], fields[i], kMaxSize);
    }
  }
  Checkpoint model;
  model.dim = fields[0];
  model.hidden_dim = fields[1];
  model.num_layers = fields[2];
  model.num_q_heads = fields[3];
  model.num_kv_heads = fields[4];
  model.vocab_size = std::abs(fields[5]);
  model.context_length = fields[6];
  if (model.dim % model.num_q_heads != 0 || model.head_dim() % 2 != 0 ||
      model.num_q_heads % model.num_kv_heads != 0) {
    return fail(ErrorKind::kInvalidContent,
                "{}: byte 12: dim {}, {} query heads and {} key heads do not divide", file.name(), model.dim,
                model.num_q_heads, model.num_kv_heads);
  }
  if (fields[5] < 0) model.wcls.num_rows = model.vocab_size;  // a negative vocabulary: untied
  return model;
}

}  // namespace

bool Vocabulary::is_byte(std::size_t id) const {
  const auto& token = tokens[id];
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         token.find_first_not_of("0123456789ABCDEF", 3) == 5;
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& path) {
  SIGHTLINE_TRY(const InputFile file, InputFile::open(path));
  SIGHTLINE_TRY(Checkpoint model, read_header(file));
  const std::int64_t dim = model.dim;
  const std::int64_t kv_dim = model.num_kv_heads * model.head_dim();
  const std::int64_t layers = model.num_layers;
  const bool is_untied = model.wcls.num_rows != 0;
  // The two tables of rotary angles that old files carry; llama2.c skips them too.
  Weights freq_cis{{}, model.context_length, model.head_dim() / 2};
  struct Part {
    Weights* weights;
    std::int64_t count, num_rows, row_length;
  };
  std::vector<Part> parts{{&model.token_embedding, 1, model.vocab_size, dim},
                          {&model.rms_att, layers, 1, dim},
                          {&model.wq, layers, dim, dim},
                          {&model.wk, layers, kv_dim, dim},
                          {&model.wv, layers, kv_dim, dim},
                          {&model.wo, layers, dim, dim},
                          {&model.rms_ffn, layers, 1, dim},
                          {&model.w1, layers, model.hidden_dim, dim},
                          {&model.w2, layers, dim, model.hidden_dim},
                          {&model.w3, layers, model.hidden_dim, dim},
                          {&model.rms_final, 1, 1, dim},
                          {&freq_cis, 2, freq_cis.num_rows, freq_cis.row_length}};
  if (is_untied) parts.push_back({&model.wcls, 1, model.vocab_size, dim});

  // Each size is at most 2^20, so that count * rows * length * 4 stays below 2^62.
  std::uint64_t expected = kHeaderBytes;
  for (const auto& part : parts) {
    const auto sum = checked_add(expected, static_cast<std::uint64_t>(part.count * part.num_rows) *
                                               static_cast<std::uint64_t>(part.row_length) * sizeof(float));
    if (!sum || *sum > file.size()) {
      return fail(ErrorKind::kInvalidContent, "{}: {} bytes, its header asks for more", file.name(),
                  file.size());
    }
    expected = *sum;
  }
  if (expected != file.size()) {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {} bytes follow the last tensor", file.name(),
                expected, file.size() - expected);
  }
  std::uint64_t offset = kHeaderBytes;
  for (auto& part : parts) {
    auto& w = *part.weights;
    w.num_rows = part.num_rows;
    w.row_length = part.row_length;
    w.values.resize(static_cast<std::size_t>(part.count * part.num_rows * part.row_length));
    SIGHTLINE_CHECK(file.read_at(offset, std::as_writable_bytes(std::span(w.values))));
    offset += w.values.size() * sizeof(float);
  }
  return model;
}

Result<Vocabulary> read_vocabulary(const std::filesystem::path& path, std::int64_t vocab_size) {
  SIGHTLINE_TRY(const std::string bytes, read_file(path, kMaxVocabularyBytes));
  const auto refuse = [&](std::size_t offset, std::string_view why) {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {}", path.string(), offset, why);
  };
  if (vocab_size <= kEosId) return refuse(0, "a vocabulary without <unk>, <s> and </s>");
  Vocabulary vocabulary;
  std::size_t at = sizeof(std::int32_t);  // the first field is the longest token's length
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    float score = 0;
    std::int32_t length = 0;
    if (bytes.size() < at || bytes.size() - at < sizeof(score) + sizeof(length)) {
      return refuse(at, fmt::format("token {}: the file ends, {} tokens expected", id, vocab_size));
    }
    std::memcpy(&score, bytes.data() + at, sizeof(score));
    std::memcpy(&length, bytes.data() + at + sizeof(score), sizeof(length));
    at += sizeof(score) + sizeof(length);
    if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at) {
      return refuse(at - sizeof(length),
                    fmt::format("token {}: length {}, {} bytes left", id, length, bytes.size() - at));
    }
    std::string token;
    for (const char c : std::string_view(bytes).substr(at, static_cast<std::size_t>(length))) {
      if (c == ' ') {
        token += kSpace;
      } else {
        token += c;
      }
    }
    at += static_cast<std::size_t>(length);
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.scores.push_back(score);
  }
  if (at != bytes.size()) return refuse(at, fmt::format("bytes follow token {}", vocab_size - 1));
  // llama2.c's exporter writes line breaks around the special ones.
  vocabulary.tokens[static_cast<std::size_t>(kUnkId)] = "<unk>";
  vocabulary.tokens[static_cast<std::size_t>(kBosId)] = "<s>";
  vocabulary.tokens[static_cast<std::size_t>(kEosId)] = "</s>";
  return vocabulary;
}

std::vector<NamedTensor> list_tensors(const Checkpoint& model, const TensorNames& names) {
  std::vector<NamedTensor> tensors;
  std::string prefix;
  const auto add = [&](const std::string& name, const Weights& w, std::int64_t layer,
                       std::int64_t num_rotated_heads = 0) {
    const bool is_vector = w.num_rows == 1;
    tensors.push_back({{prefix + name + ".weight", DataType::kF32,
                        is_vector ? std::vector{w.row_length} : std::vector{w.num_rows, w.row_length}},
                       w.layer(layer),
                       num_rotated_heads});
  };
  add(names.embedding, model.token_embedding, 0);
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    prefix = fmt::format(fmt::runtime(names.layer), i);
    add(names.attention_norm, model.rms_att, i);
    add(names.q, model.wq, i, model.num_q_heads);
    add(names.k, model.wk, i, model.num_kv_heads);
    add(names.v, model.wv, i);
    add(names.o, model.wo, i);
    add(names.ffn_norm, model.rms_ffn, i);
    add(names.gate, model.w1, i);
    add(names.down, model.w2, i);
    add(names.up, model.w3, i);
  }
  prefix.clear();
  add(names.final_norm, model.rms_final, 0);
  if (!model.is_tied()) add(names.head, model.wcls, 0);
  return tensors;
}

std::vector<TensorDecl> declarations(std::span<const NamedTensor> tensors) {
  std::vector<TensorDecl> decls;
  for (const NamedTensor& tensor : tensors) decls.push_back(tensor.decl);
  return decls;
}

std::vector<float> neighbours_to_halves(std::span<const float> matrix, std::int64_t num_heads,
                                        std::int64_t head_dim, std::int64_t row_length) {
  std::vector<float> out(matrix.size());
  for (std::int64_t head = 0; head < num_heads; ++head) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      for (std::int64_t b = 0; b < 2; ++b) {
        const std::int64_t from = (head * head_dim + 2 * i + b) * row_length;
        const std::int64_t to = (head * head_dim + i + b * head_dim / 2) * row_length;
        std::memcpy(&out[static_cast<std::size_t>(to)], &matrix[static_cast<std::size_t>(from)],
                    static_cast<std::size_t>(row_length) * sizeof(float));
      }
    }
  }
  return out;
}

}  // namespace sightline::llama2c
