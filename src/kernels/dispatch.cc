// The one CPUID choice. No kernel lives here: this file is compiled for the baseline.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/isa_tables.h"

namespace sightline::kernels {

namespace {

struct Available {
  std::array<const KernelTable*, 5> tables{};
  std::size_t count = 0;
};

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512_bf16() { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }
#endif

const Available& available() {
  static const Available found = [] {
    Available out;
    out.tables[out.count++] = &portable_table();
#if defined(__x86_64__)
    if (has_avx2()) out.tables[out.count++] = &avx2_table();
    if (has_avx512()) out.tables[out.count++] = &avx512_table();
    if (has_avx512_vnni()) out.tables[out.count++] = &avx512_vnni_table();
    if (has_avx512_bf16()) out.tables[out.count++] = &avx512_bf16_table();
#endif
    return out;
  }();
  return found;
}

const KernelTable* find_table(std::string_view name) {
  for (const KernelTable* table : available_tables()) {
    if (table->name == name) return table;
  }
  return nullptr;
}

}  // namespace

std::span<const KernelTable* const> available_tables() {
  const Available& found = available();
  return {found.tables.data(), found.count};
}

Result<const KernelTable*> select_isa(std::string_view name) {
  if (name.empty()) return available_tables().back();
  if (const KernelTable* table = find_table(name)) return table;
  constexpr std::array<std::string_view, 4> kOthers = {"avx2", "avx512", "avx512_vnni", "avx512_bf16"};
  if (std::ranges::find(kOthers, name) == kOthers.end()) {
    return fail(ErrorKind::kInvalidArgument,
                "SIGHTLINE_ISA: expected portable, avx2, avx512, avx512_vnni or avx512_bf16, got '{}'",
                name.substr(0, 64));
  }
  return fail(ErrorKind::kConfiguration, "SIGHTLINE_ISA: this CPU does not support {}; it has up to {}", name,
              available_tables().back()->name);
}

namespace {
const Result<const KernelTable*>& chosen() {
  static const Result<const KernelTable*> table = [] {
    const char* name = std::getenv("SIGHTLINE_ISA");
    return select_isa(name == nullptr ? "" : name);
  }();
  return table;
}
}  // namespace

const KernelTable& active_table() { return chosen() ? **chosen() : portable_table(); }

Result<void> selection_error() {
  SIGHTLINE_CHECK(chosen());
  return {};
}

}  // namespace sightline::kernels
