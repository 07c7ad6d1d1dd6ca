// Fills a kernel table from the templates, for the instruction set of the including file.
#pragma once

#include "kernels/activation-inl.h"
#include "kernels/backward-inl.h"
#include "kernels/calibrate-inl.h"
#include "kernels/linear-bf16-inl.h"
#include "kernels/linear-inl.h"
#include "kernels/linear-quant-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/quantize-inl.h"
#include "kernels/scores-inl.h"
#include "kernels/softmax-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

constexpr KernelTable make_table(const char* name, const char* description, bool fused) {
  KernelTable table;
  table.name = name;
  table.description = description;
  table.fused_multiply_add = fused;
  table.vector_floats = kLanes;
  table.num_sum_lanes = kLanes;
  table.linear_rows = linear_rows;
  table.activate_row = activate_row;
  table.attention_scores = attention_scores;
  table.pack_columns = pack_columns;
  table.modify_scores = modify_scores;
  table.softmax_tile = softmax_tile;
  table.attention_values = attention_values;
  table.softmax_backward = softmax_backward;
  table.attention_outer = attention_outer;
  table.sum_lanes = sum_lanes;
  table.quantize_rows = quantize_rows;
  table.linear_quant = linear_quant;
  table.int8_dot = kInt8Dot;
  table.bf16_dot = kBf16Dot;
  table.linear_bf16 = linear_bf16;
  table.pack_bf16_row = pack_bf16_row;
  table.calibrate_peak = calibrate_peak;
  table.read_all = read_all;
  return table;
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
