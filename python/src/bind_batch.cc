// check_batch on arrays.
#include "bind.h"
#include "docstrings.h"
#include "sightline/checker/batch.h"

namespace sightline::python {

namespace {

using Integers = nb::ndarray<const std::int64_t, nb::c_contig, nb::device::cpu>;
using checker::TrainingBatch;

std::vector<std::int64_t> values(const std::optional<Integers>& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

}  // namespace

void bind_batch(nb::module_& m) {
  m.def(
      "check_batch",
      [](std::int64_t num_rows, std::int64_t num_tokens, const std::optional<Integers>& input_ids,
         const std::optional<Integers>& labels, const std::optional<Integers>& attention_mask,
         const std::optional<Integers>& pair_mask, const std::optional<Integers>& position_ids,
         const std::optional<Integers>& segment_ids, const std::optional<Integers>& is_prompt,
         std::optional<std::int64_t> pad_id, std::optional<std::int64_t> eos_id, std::int64_t ignore_index,
         const std::string& mask, const std::string& loss, bool model_shifts, bool positions_restart) {
        TrainingBatch batch;
        batch.num_rows = num_rows;
        batch.num_tokens = num_tokens;
        batch.input_ids = values(input_ids);
        batch.labels = values(labels);
        batch.attention_mask = values(attention_mask);
        batch.pair_mask = values(pair_mask);
        batch.position_ids = values(position_ids);
        batch.segment_ids = values(segment_ids);
        batch.is_prompt = values(is_prompt);
        batch.pad_id = pad_id;
        batch.eos_id = eos_id;
        batch.ignore_index = ignore_index;
        checker::BatchDeclaration declaration;
        declaration.mask = unwrap(parse_mask(mask));
        declaration.loss = unwrap(loss_spec_from_json(unwrap(parse_json(loss, "loss"))));
        declaration.model_shifts = model_shifts;
        declaration.positions_restart = positions_restart;
        const checker::Report report = unwrap(checker::check_batch(batch, declaration));
        return report_tuple(report, "training batch, mask " + mask, "");
      },
      nb::kw_only(), nb::arg("num_rows"), nb::arg("num_tokens"), nb::arg("input_ids").none(),
      nb::arg("labels").none(), nb::arg("attention_mask").none(), nb::arg("pair_mask").none(),
      nb::arg("position_ids").none(), nb::arg("segment_ids").none(), nb::arg("is_prompt").none(),
      nb::arg("pad_id").none(), nb::arg("eos_id").none(), nb::arg("ignore_index"), nb::arg("mask"),
      nb::arg("loss"), nb::arg("model_shifts"), nb::arg("positions_restart"), kDoc_checker_check_batch);
}

}  // namespace sightline::python
