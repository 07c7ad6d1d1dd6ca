// F. Training objective, G. gradients, H. batch independence.
#include "catalogue_entries.h"

namespace sightline::faults {
namespace {

std::vector<CatalogueEntry> objective_entries() {
  constexpr FaultGroup kGroup = FaultGroup::kObjective;
  return {
      {.slug = "loss.label_shift",
       .group = kGroup,
       .what = "targets are shifted twice, or not at all",
       .shows_in = ShowsIn::kLoss,
       .where = "twice: the loss is that of token t + 2; none: it falls to nearly 0, a copy",
       .neighbours = {"loss.scope", "mask.causal_dropped"},
       .idiom = "labels = ids[:, 1:] handed to a model whose loss shifts again",
       .fix = "shift in one place: logits[:, :-1] against labels[:, 1:]",
       .not_planted = ""},
      {.slug = "loss.normalisation",
       .group = kGroup,
       .what = "means of means over micro-batches or ranks, or a division too many",
       .shows_in = ShowsIn::kLoss,
       .where = "the same data split otherwise gives another loss and gradient",
       .neighbours = {"loss.scope"},
       .idiom = "loss.mean() of each micro-batch, then / accumulation_steps",
       .fix = "sum over all targets of the step, divided once by their number over micro-batches and ranks",
       .not_planted = ""},
      {.slug = "loss.scope",
       .group = kGroup,
       .what = "the wrong positions carry loss: document boundaries, padding, the real end token, prompts",
       .shows_in = ShowsIn::kLoss,
       .where = "the number of targets is not the expected one; the loss moves with the pad id",
       .neighbours = {"loss.label_shift", "loss.normalisation", "pack.cross_document"},
       .idiom = "labels[ids == pad_id] = -100 with pad_id == eos_id",
       .fix = "leave padding out by position, and the first token of the next document by its boundary",
       .not_planted = ""},
      {.slug = "pack.cross_document",
       .group = kGroup,
       .what = "packed documents read each other",
       .shows_in = ShowsIn::kOutputs,
       .where = "editing one document changes the next",
       .neighbours = {"mask.composition", "pack.position_reset", "loss.scope"},
       .idiom =
           "position_ids restart and a plain causal mask is used, or an all-ones mask disables detection",
       .fix = "block-diagonal mask, or cumulative lengths; mask: causal & segment",
       .not_planted = ""},
      {.slug = "pack.position_reset",
       .group = kGroup,
       .what = "positions do not restart with each document, or are not padded with their row",
       .shows_in = ShowsIn::kOutputs,
       .where = "with documents apart: only where positions are not relative; else rows after a boundary",
       .neighbours = {"pack.cross_document", "cache.position_offset"},
       .idiom = "position_ids = arange(row_len) over packed documents",
       .fix = "position_ids = arange over each document, joined",
       .not_planted = ""},
  };
}

std::vector<CatalogueEntry> gradient_entries() {
  constexpr FaultGroup kGroup = FaultGroup::kGradient;
  return {
      {.slug = "grad.delta_term",
       .group = kGroup,
       .what = "the row term sum(dO * O) is missing, stale, or read with wrong strides",
       .shows_in = ShowsIn::kGradients,
       .where = "dv is exact, dq and dk are not; rows of dS do not sum to 0",
       .neighbours = {"score.softcap", "grad.mask_mismatch", "grad.severed"},
       .idiom = "ds = p * dp, or delta computed from dO before it was written",
       .fix = "ds = p * (dp - (dO * O).sum(-1))",
       .not_planted = ""},
      {.slug = "grad.gqa_reduction",
       .group = kGroup,
       .what = "dk and dv are not summed over the query heads of a group, or land in the wrong head",
       .shows_in = ShowsIn::kGradients,
       .where = "dq is exact; dk and dv are one head's share, a mean, or another head's",
       .neighbours = {"grad.severed", "head.gqa_mapping"},
       .idiom = "dk[kv_head] = ... in a loop over query heads, instead of +=",
       .fix = "sum over the group: dk.view(num_kv_heads, group, ...).sum(1)",
       .not_planted = ""},
      {.slug = "grad.mask_mismatch",
       .group = kGroup,
       .what = "forward and backward use other masks, windows or tiles",
       .shows_in = ShowsIn::kGradients,
       .where = "the forward is exact; gradients reach hidden keys",
       .neighbours = {"mask.causal_dropped", "mask.window_scope", "grad.delta_term", "grad.dropout_replay"},
       .idiom = "the backward kernel is launched without causal or window_size",
       .fix = "evaluate one predicate in both passes",
       .not_planted = ""},
      {.slug = "grad.nondeterminism",
       .group = kGroup,
       .what = "gradients are added in an order that varies, or by a race",
       .shows_in = ShowsIn::kRepeats,
       .where = "repeats differ bit by bit; only dq by design of some kernels, any by a race",
       .neighbours = {"grad.unwritten", "batch.reduction_order"},
       .idiom = "atomicAdd(&dq[i], x) from blocks that finish in any order",
       .fix = "reduce in a fixed order, or write partial sums and add them once",
       .not_planted = ""},
      {.slug = "grad.dropout_replay",
       .group = kGroup,
       .what = "the backward draws another dropout than the forward",
       .shows_in = ShowsIn::kGradients,
       .where = "the forward is right, dv is wrong by a pattern of dropped pairs",
       .neighbours = {"grad.mask_mismatch"},
       .idiom = "the seed is read again in the backward, after the generator has moved on",
       .fix = "save seed and offset with the forward and draw by a counter of the pair",
       .not_planted = ""},
      {.slug = "grad.unwritten",
       .group = kGroup,
       .what = "gradients or row statistics of rows beyond the last length are never written",
       .shows_in = ShowsIn::kGradients,
       .where = "NaN or leftovers at the tail; a poisoned allocator makes it certain",
       .neighbours = {"mask.fully_masked_row", "grad.nondeterminism", "grad.severed"},
       .idiom = "dq = torch.empty_like(q), and a kernel that stops at cu_seqlens[-1]",
       .fix = "zeros for what the kernel does not write",
       .not_planted = ""},
      {.slug = "grad.severed",
       .group = kGroup,
       .what = "an operation has no backward and silently stops gradients",
       .shows_in = ShowsIn::kGradients,
       .where = "a gradient is None or exactly 0, and the loss does depend on its input",
       .neighbours = {"grad.delta_term", "grad.gqa_reduction", "grad.unwritten", "score.sink"},
       .idiom = "a fused forward-only kernel, .detach() or .data inside the layer",
       .fix = "give the operation a backward, or refuse to run it where gradients are wanted",
       .not_planted = ""},
      {.slug = "grad.check_misuse",
       .group = kGroup,
       .what = "a check of gradients or values compares with a poor oracle",
       .shows_in = ShowsIn::kGradients,
       .where = "differences are units in the last place over two steps; in float64 the same check passes",
       .neighbours = {"score.softmax_precision"},
       .idiom = "gradcheck(f, inputs.float(), eps=1e-6), or a half-precision reference",
       .fix = "run reference and finite differences in float64, over a sweep of steps",
       .not_planted = ""},
  };
}

std::vector<CatalogueEntry> batch_entries() {
  constexpr FaultGroup kGroup = FaultGroup::kBatch;
  return {
      {.slug = "batch.reduction_order",
       .group = kGroup,
       .what = "a row's result depends on the batch through the order of additions alone",
       .shows_in = ShowsIn::kBatchRows,
       .where = "1 to 2 units in the last place, equal on a rerun, changing with the batch size",
       .neighbours = {"batch.kernel_indexing", "grad.nondeterminism", "score.softmax_precision"},
       .idiom = "the number of splits is chosen by how busy the device is",
       .fix = "a fixed split for each length, whatever else is in the batch",
       .not_planted = ""},
      {.slug = "batch.kernel_indexing",
       .group = kGroup,
       .what = "a kernel is wrong for some batch sizes or strides only",
       .shows_in = ShowsIn::kBatchRows,
       .where = "wrong for a range of batch sizes, or where an offset passes 2^30; right alone",
       .neighbours = {"batch.reduction_order", "rope.batch_row", "mask.stale_or_misbound"},
       .idiom = "a 32-bit offset, or a template for 3 to 8 columns with the wrong stride",
       .fix = "64-bit offsets, and a test of every batch size from 1 to 16 against the row alone",
       .not_planted = ""},
  };
}

}  // namespace

std::vector<CatalogueEntry> training_entries() {
  std::vector<CatalogueEntry> entries = objective_entries();
  for (const auto& part : {gradient_entries(), batch_entries()}) {
    entries.insert(entries.end(), part.begin(), part.end());
  }
  return entries;
}

}  // namespace sightline::faults
