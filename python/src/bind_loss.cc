// check_loss on arrays.
#include "bind.h"
#include "docstrings.h"
#include "sightline/checker/loss.h"

namespace sightline::python {

namespace {

using Integers = nb::ndarray<const std::int64_t, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using checker::LossObservation;

template <typename T, typename Array>
std::vector<T> values(const std::optional<Array>& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

}  // namespace

void bind_loss(nb::module_& m) {
  nb::class_<LossObservation>(m, "LossObservation", "One training step: logits, labels, and what came out.")
      .def(
          "__init__",
          [](LossObservation* self, std::int64_t num_rows, std::int64_t num_tokens, std::int64_t vocab_size,
             std::int64_t hidden_dim, const std::string& type, const std::optional<Numbers>& logits,
             const std::optional<Numbers>& hidden, const std::optional<Numbers>& head,
             const std::optional<Integers>& labels, const std::optional<Integers>& input_ids,
             const std::optional<Integers>& micro_batches, std::int64_t ignore_index, bool model_shifts,
             std::optional<double> loss, const std::optional<Numbers>& d_head) {
            LossObservation o;
            o.num_rows = num_rows;
            o.num_tokens = num_tokens;
            o.vocab_size = vocab_size;
            o.hidden_dim = hidden_dim;
            o.type = element_type(type);
            o.logits = values<double>(logits);
            o.hidden = values<double>(hidden);
            o.head = values<double>(head);
            o.labels = values<std::int64_t>(labels);
            o.input_ids = values<std::int64_t>(input_ids);
            o.micro_batch = values<std::int64_t>(micro_batches);
            o.ignore_index = ignore_index;
            o.model_shifts = model_shifts;
            o.loss = loss;
            o.d_head = values<double>(d_head);
            new (self) LossObservation(std::move(o));
          },
          nb::kw_only(), nb::arg("num_rows"), nb::arg("num_tokens"), nb::arg("vocab_size"),
          nb::arg("hidden_dim"), nb::arg("type"), nb::arg("logits").none(), nb::arg("hidden").none(),
          nb::arg("head").none(), nb::arg("labels").none(), nb::arg("input_ids").none(),
          nb::arg("micro_batches").none(), nb::arg("ignore_index"), nb::arg("model_shifts"),
          nb::arg("loss").none(), nb::arg("d_head").none());
  m.def(
      "check_loss",
      [](const std::vector<LossObservation*>& observations) {
        std::vector<LossObservation> all;
        for (const LossObservation* o : observations) all.push_back(*o);
        const checker::Report report = unwrap(checker::check_loss(all));
        return report_tuple(report, "training step, mean over all targets", "");
      },
      nb::arg("observations"), kDoc_checker_check_loss);
}

}  // namespace sightline::python
