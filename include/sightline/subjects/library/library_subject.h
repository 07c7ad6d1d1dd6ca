// A shared library with the plain C interface of sightline/subject.h as a subject.
#pragma once

#include <filesystem>
#include <memory>

#include "sightline/subjects/process/process_subject.h"

namespace sightline::subjects {

/// Loads `path` in a child process and speaks to it there. Call it before threads are started.
/// Errors: kNoInput: no such file; kInvalidContent: no library of this kind, or of another version; those of
/// start_child.
[[nodiscard]] Result<std::unique_ptr<checker::Subject>> start_library(const std::filesystem::path& path,
                                                                      const ProcessOptions& options = {});

}  // namespace sightline::subjects
