// A dump of arrays as something to check: an .npz or .safetensors file, or a folder of .npy files. Names and
// axes are guessed where the sizes allow it, said, and settable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/checker/observation.h"

namespace sightline::subjects {

/// One array of a dump, widened.
struct DumpArray {
  std::string name;
  std::string type;  ///< as the file spells it: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::vector<double> values;  ///< row-major
};

struct Dump {
  std::string source;  ///< file or folder, for messages
  std::vector<DumpArray> arrays;

  [[nodiscard]] const DumpArray* find(std::string_view name) const;
};

/// Arrays of all readers together; more is refused.
inline constexpr std::uint64_t kDumpMaxBytes = std::uint64_t{2} << 30;

/// Reads every array. Pickles (.pt, .pth, .bin, .pkl) are refused: reading them runs code.
/// Errors: kNoInput for a missing path or a folder without .npy files; kInvalidContent as the readers of
/// formats/, for a repeated name, or for an array type that is only named.
[[nodiscard]] Result<Dump> read_dump(const std::filesystem::path& path);

struct DumpOptions {
  /// What was declared; heads and dims are taken from the arrays.
  AttentionSpec spec;
  /// Pairs (our name, the dump's name) for arrays that are not found by their usual names.
  std::vector<std::pair<std::string, std::string>> names;
  /// Order of the axes of q: letters of "bthd" (batch, tokens, heads, dim). Empty: guessed.
  std::string axes;
  /// Type the outputs were computed in. Empty: the narrowest that holds every number of them, f64 only where
  /// the inputs are f64 too.
  std::optional<checker::ElementType> type;
  /// Queries of one of their calls, where no array says at which rows calls begin; 0: all in one.
  std::int64_t chunk = 0;
};

struct DumpContent {
  std::vector<checker::Observation> observations;  ///< one a batch row
  std::vector<std::string> assumptions;            ///< what was guessed, one line each
};

/// Head counts and dims of the dump, for declarations that hang on them. Errors: as read_observations.
[[nodiscard]] Result<HeadSpec> read_heads(const Dump& dump, const DumpOptions& options);

/// The dump under a declaration.
///
/// Arrays by our names: q, k, v (needed); out, lse, weights, d_q, d_k, d_v (at least one); d_out (with
/// gradients); bias, mask (1: may be seen), valid (1: a token, 0: padding), q_pos, kv_pos, q_rope_pos,
/// kv_rope_pos, segment, call_begins. Queries without positions are the last tokens of the keys. `out` may
/// have its heads merged into the last axis.
/// Errors (kInvalidContent): an array that is missing, shapes that do not agree (both are named), axes that
/// the sizes leave open (say `axes`).
[[nodiscard]] Result<DumpContent> read_observations(const Dump& dump, const DumpOptions& options);

}  // namespace sightline::subjects
