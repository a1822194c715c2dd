// What convoy.tune calls: python/convoy/tuning.py.
#include "convoy/tune.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "core/printable.hpp"
#include "gil.hpp"
#include "network.hpp"
#include "stage.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

nb::list rows_of(const std::vector<TuneRow>& rows) {
  nb::list all;
  for (const TuneRow& row : rows) {
    nb::dict one;
    one["kernel"] = row.kernel;
    one["tile"] = row.tile;
    one["predicted_seconds"] = row.predicted;
    one["median_seconds"] = row.median;
    one["minimum_seconds"] = row.minimum;
    one["runs"] = row.runs;
    one["chosen"] = row.chosen;
    if (!row.refused.empty()) one["refused"] = row.refused;
    all.append(one);
  }
  return all;
}

nb::dict record_of(const nb::list& stages, const std::string& saved_to) {
  nb::dict record;
  record["stages"] = stages;
  if (!saved_to.empty()) record["saved_to"] = printable_path(saved_to);
  return record;
}

nb::dict tune_stage(nb::handle stage, const std::string& device, int threads, double seconds,
                    bool save) {
  const Stage asked = stage_of(stage);
  const PlanOptions options{.device = parse_device(device), .threads = threads};
  const TuneResult result = [&] {
    const Released released;
    return tune(asked, options, seconds, save);
  }();
  nb::dict one;
  one["stage"] = to_text(result.stage);
  one["arithmetic"] = result.arithmetic;
  one["rows"] = rows_of(result.rows);
  nb::list stages;
  stages.append(one);
  return record_of(stages, result.saved_to);
}

nb::dict tune_network(const PythonNetwork& network, const std::vector<Index>& batches,
                      double seconds, bool save) {
  const NetworkTuneResult result = [&] {
    const Released released;
    return tune(network.network, batches, seconds, save);
  }();
  nb::list stages;
  for (const TunedStage& tuned : result.stages) {
    nb::dict one;
    one["stage"] = tuned.stage;
    one["arithmetic"] = tuned.arithmetic;
    one["layers"] = nb::cast(tuned.layers);
    one["batch"] = tuned.batch;
    one["rows"] = rows_of(tuned.rows);
    stages.append(one);
  }
  return record_of(stages, result.saved_to);
}

}  // namespace

void define_tune(nb::module_& module) {
  module.def("_tune_stage", &tune_stage, nb::arg("stage"), nb::arg("device"), nb::arg("threads"),
             nb::arg("seconds"), nb::arg("save"), "Measures a stage, for convoy.tune.");
  module.def("_tune_network", &tune_network, nb::arg("network"), nb::arg("batches"),
             nb::arg("seconds"), nb::arg("save"), "Measures a network, for convoy.tune.");
}

}  // namespace convoy::python
