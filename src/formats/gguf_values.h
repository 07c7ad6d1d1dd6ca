// One value of GGUF metadata from bytes.
#pragma once

#include <string>

#include "byte_cursor.h"
#include "sightline/base/error.h"
#include "sightline/formats/gguf_metadata.h"

namespace sightline {

/// A string: u64 length, then that many bytes, at most `max_bytes`.
[[nodiscard]] Result<std::string> read_gguf_string(ByteCursor& cursor, std::string_view field,
                                                   std::uint64_t max_bytes);

/// The value of GGUF type number `type`. `field` names it in messages.
[[nodiscard]] Result<GgufValue> read_gguf_value(ByteCursor& cursor, std::uint32_t type,
                                                std::string_view field);

}  // namespace sightline
