// Split sets: one model over files PREFIX-00001-of-0000N.gguf, of which the first holds the metadata.
#pragma once

#include <filesystem>
#include <vector>

#include "gguf_header.h"
#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"

namespace sightline {

/// Opens the other parts of the set that `first` (the header of files[0]) says it begins, adds their sources
/// to `files` and their tensors to `first`. Does nothing for a file that is no part of a set. Errors:
/// kInvalidContent when a part is missing, repeated, or disagrees about the counts, when the opened file is
/// not the first part, or when its name does not have the form above.
[[nodiscard]] Result<void> open_gguf_parts(const std::filesystem::path& path, GgufHeader& first,
                                           std::vector<BytesPtr>& files);

}  // namespace sightline
