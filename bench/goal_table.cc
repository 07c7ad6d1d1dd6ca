// The marks, as data: one line for each kind of row. Rows are named in bench/*_rows.cc; lines whose rows are
// still to be written say by their pattern what to call them. The first line that fits counts.
#include "bench/goals.h"

namespace sightline::bench {

namespace {

constexpr Sense kAtMost = Sense::kAtMost;
constexpr Sense kAtLeast = Sense::kAtLeast;

constexpr Goal kGoals[] = {
    // Forward, fraction of the peak of the type.
    {"f32-dense-d64-*", 0.86, 0.90},
    {"f32-dense-d128-*", 0.89, 0.93},
    {"f32-causal-d64-T512", 0.79, 0.86},
    {"f32-causal-d64-T2048", 0.83, 0.88},
    {"f32-causal-d64-T4096", 0.85, 0.89},
    {"f32-causal-d128-T512", 0.81, 0.88},
    {"f32-causal-d128-T2048", 0.86, 0.90},
    {"f32-causal-d128-T4096", 0.87, 0.91},
    {"bf16-dense-d64-*", 0.78, 0.84},
    {"bf16-dense-d128-*", 0.84, 0.89},
    {"bf16-causal-d64-T512", 0.69, 0.77},
    {"bf16-causal-d64-T2048", 0.74, 0.80},
    {"bf16-causal-d64-T4096", 0.77, 0.82},
    {"bf16-causal-d128-T512", 0.76, 0.83},
    {"bf16-causal-d128-T2048", 0.80, 0.86},
    {"bf16-causal-d128-T4096", 0.82, 0.88},
    {"avx2-f32-dense-*", 0.80, 0.85},
    {"avx2-f32-causal-*", 0.75, 0.82},
    // Masks, forward and backward: time over density x dense time.
    {"mask-*", 1.15, 1.08, kAtMost},
    {"backward-mask-*", 1.15, 1.08, kAtMost},
    {"blocks128-*", 1.20, 1.10, kAtMost},
    {"blocks64-*", 1.35, 1.20, kAtMost},
    {"boolean-50-*", 1.20, 1.10, kAtMost},
    // Scores: time over the time without.
    {"alibi-*", 1.06, 1.03, kAtMost},
    {"sinks-*", 1.06, 1.03, kAtMost},
    {"softcap-*", 1.30, 1.20, kAtMost},
    {"pairs-*", 1.06, 1.03, kAtMost},
    {"plan-*", 0.02, 0.02, kAtMost},
    // Chunks of 512: the d128 causal T 4096 mark of the type minus 0.03, and that mark.
    {"chunk512-f32-*", 0.84, 0.87},
    {"chunk512-bf16-*", 0.79, 0.82},
    {"chunk512-paged-over-contiguous-*", 1.03, 1.00, kAtMost},
    // Decode, fraction of the read bandwidth. A ragged batch may take 1.12 (1.05) times bytes / bandwidth.
    {"decode-*-ragged16-*", 1 / 1.12, 1 / 1.05},
    {"decode-bf16-*", 0.82, 0.90, kAtLeast, 0.65, 0.80},
    {"decode-int8-*", 0.75, 0.82, kAtLeast, 0.60, 0.72},
    {"varlen16-*", 0.90, 0.95},
    {"scaling-*", 1.90, 1.90},
    {"call-1x1x64", 2e-6, 2e-6, kAtMost},
    // Backward.
    {"backward-f32-dense-d64-*", 0.87, 0.91},
    {"backward-f32-dense-d128-*", 0.85, 0.90},
    {"backward-f32-causal-d64-T512", 0.79, 0.86},
    {"backward-f32-causal-d64-T2048", 0.84, 0.88},
    {"backward-f32-causal-d64-T4096", 0.87, 0.90},
    {"backward-f32-causal-d128-T512", 0.75, 0.80},
    {"backward-f32-causal-d128-T2048", 0.82, 0.87},
    {"backward-f32-causal-d128-T4096", 0.84, 0.88},
    {"backward-f32-gqa-d64-*", 0.84, 0.88},  // the mark of as many key heads, causal T 2048
    {"backward-f32-gqa-d128-*", 0.82, 0.87},
    {"backward-bf16-dense-*", 0.71, 0.82},
    {"backward-bf16-causal-*", 0.66, 0.76},
    {"backward-bf16-gqa-*", 0.66, 0.76},
    {"backward-memory-*", 2.00, 2.00, kAtMost},  // bytes beyond inputs and outputs over those of q, k, v
    // Linear layers of 4096 x 4096, by rows: one row is bound by reading the weights.
    {"linear-f32-4096x4096-1", 0.95, 0.99},
    {"linear-f32-4096x4096-64", 0.89, 0.93},
    {"linear-f32-4096x4096-512", 0.91, 0.95},
    {"linear-bf16-4096x4096-1", 0.95, 0.99},
    {"linear-bf16-4096x4096-64", 0.82, 0.88},
    {"linear-bf16-4096x4096-512", 0.86, 0.92},
    {"linear-q8_0-4096x4096-1", 0.90, 0.95},
    {"linear-q8_0-4096x4096-64", 0.64, 0.69},
    {"linear-q8_0-4096x4096-512", 0.66, 0.70},
    {"linear-q4_1-4096x4096-1", 0.88, 0.95},
    {"linear-q4_1-4096x4096-64", 0.58, 0.64},
    {"linear-q4_1-4096x4096-512", 0.60, 0.65},
    {"linear-*-4096x4096-4", 0.40, 0.70},  // of the nearer limit
    {"linear-*-4096x4096-8", 0.40, 0.70},
    {"linear-*-4096x4096-16", 0.40, 0.70},
    // A whole model.
    {"bf16 tg64", 0.80, 0.90},
    {"bf16 pp512", 0.60, 0.72},
    {"tg64", 1.6, 2.2, kAtLeast, 0, 0, "llama.cpp"},
    {"tg64 @ d4096", 2.0, 2.8, kAtLeast, 0, 0, "llama.cpp"},
    {"pp512", 3.0, 6.0, kAtLeast, 0, 0, "llama.cpp"},
    {"pp512 @ d4096", 4.0, 6.0, kAtLeast, 0, 0, "llama.cpp"},
    {"start-*", 0.3, 0.3, kAtMost},
};

}  // namespace

std::span<const Goal> goals() { return kGoals; }

}  // namespace sightline::bench
