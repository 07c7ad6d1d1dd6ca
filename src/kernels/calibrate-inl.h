// What the machine can do at most: multiply-adds in registers, and reading memory.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

// Named by unrolling: kMaxRows x 2 accumulators, as many as the kernels use.
static double calibrate_peak(std::int64_t num_steps) {
  constexpr int kAccumulators = kMaxRows * 2;
  Vec acc[kAccumulators];
#pragma GCC unroll 24
  for (int i = 0; i < kAccumulators; ++i) acc[i] = broadcast(static_cast<float>(i));
  Vec a = broadcast(0.999F);
  Vec b = broadcast(0.001F);
  for (std::int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < kAccumulators; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  Vec total = acc[0];
#pragma GCC unroll 24
  for (int i = 1; i < kAccumulators; ++i) total = hn::Add(total, acc[i]);
  float out[kLanes];
  store(total, out);
  volatile float sink = out[0];
  static_cast<void>(sink);
  return 2.0 * kLanes * kAccumulators * static_cast<double>(num_steps);
}

static float read_all(const float* data, std::size_t size) {
  Vec acc[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) acc[i] = zero();
  constexpr std::size_t kStep = static_cast<std::size_t>(8 * kLanes);
  std::size_t at = 0;
  for (; at + kStep <= size; at += kStep) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      acc[i] = hn::Add(acc[i], load(data + at + static_cast<std::size_t>(i * kLanes)));
  }
  Vec total = zero();
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) total = hn::Add(total, acc[i]);
  float lanes[kLanes];
  store(total, lanes);
  float sum = 0.0F;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  for (; at < size; ++at) sum += data[at];
  return sum;
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
