// The stages that the page is asked about: sizes, kernels with their verdicts, bytes, floors.
#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "plan/select.hpp"
#include "report/gpu_facts.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

Html sizes_table(const Explanation& e) {
  Table table("Sizes", {{"size"}, {"meaning"}, {"value", number_column}, {"is", prose_column}});
  for (const auto& size : e.sizes)
    table.add(
        {code(size.symbol), escape(size.meaning), grouped(static_cast<double>(size.value)),
         code(size.formula) +
             (size.numbers == size.formula ? Html() : html("<br>{}", code("= " + size.numbers)))});
  return table.html();
}

Html kernels_table(const Explanation& e) {
  Table table(
      "Kernels",
      {{"kernel"}, {"arithmetic"}, {"predicted", number_column}, {"verdict", prose_column}});
  for (const auto& line : e.kernels) {
    const Html verdict = !line.refusals.empty()
                             ? html("refuses: ") + joined(line.refusals, "; ", escape)
                         : line.chosen ? html("<b>chosen</b>, tile {}", escape(line.tile))
                         : line.arithmetic == e.arithmetic ? html("fits")
                                                           : html("fits, in another arithmetic");
    table.add({code(line.kernel), escape(line.arithmetic),
               line.refusals.empty() ? time_text(line.predicted.seconds) : Html(), verdict});
  }
  return table.html();
}

Html traffic_table(const Explanation& e) {
  Table table("Bytes to and from memory",
              {{"what"}, {"one kernel", number_column}, {"one pass per operation", number_column}});
  const auto cell = [](double bytes) { return bytes > 0 ? bytes_text(bytes) : Html(); };
  for (const auto& traffic : e.traffic)
    table.add({escape(traffic.what), cell(traffic.fused), cell(traffic.unfused)});
  table.add({html("<b>all</b>"), bytes_text(e.fused_bytes()), bytes_text(e.unfused_bytes())});
  return table.html();
}

Html times_list(const Explanation& e) {
  return html(
      "<ul><li>floor of arithmetic: {} <li>floor of memory: {} <li>predicted: {} ({:.2f} × the "
      "larger floor; {:.0f} % of its operations fall on padding)</ul>\n",
      time_text(e.compute_floor), time_text(e.memory_floor), time_text(e.predicted.seconds),
      e.predicted.seconds / std::max({e.compute_floor, e.memory_floor, 1e-12}),
      100 * e.predicted.waste);
}

Html view_html(const StageView& view) {
  const Explanation& e = view.explanation;
  return html(
             "<h4>On {}</h4>\n<p>Kernel <b>{}</b>, tile <b>{}</b>.</p>\n<ul><li>"
             "arithmetic, {}: {}<li>tile: {}</ul>\n",
             escape(view.where), escape(e.kernel), escape(e.tile), escape(e.arithmetic),
             escape(e.why_arithmetic), escape(e.why_tile)) +
         times_list(e) + kernels_table(e) + details("Bytes to and from memory", traffic_table(e));
}

// Every measurement of the stage.
Html measured_table(const std::string& stage, const Results& results) {
  Table table("Measured", {{"device"},
                           {"list"},
                           {"kernel"},
                           {"µs", number_column},
                           {"of peak", number_column},
                           {"best peer"},
                           {"ratio", number_column}});
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files)
      for (const BenchRow& row : file.rows)
        if (row.stage == stage)
          table.add(
              {escape(device.short_title), escape(file.name), escape(kernel_and_tile(row)),
               short_number(row.ours.median_us),
               row.peak_gflops > 0 ? html("{:.0f} %", 100 * row.gflops / row.peak_gflops) : Html(),
               escape(row.best_peer), row.ratio ? html("{:.2f}", *row.ratio) : Html()});
  return table.empty() ? html("<p>None of the results that were read has this stage.</p>\n")
                       : table.html();
}

std::string where_of(const Machine& machine, bool stored) {
  if (machine.device.kind == DeviceKind::cuda)
    return fmt::format("{}{}", machine.name, stored ? ", from stored facts" : "");
  return fmt::format("this CPU, {}, {}, {} thread{}", machine.name, machine.isa, machine.threads,
                     machine.threads == 1 ? "" : "s");
}

void add_view(const Stage& stage, const Machine& machine, bool stored,
              std::vector<StageView>& views, std::vector<std::string>& why_not) {
  try {
    PlanOptions options;
    options.device = machine.device;
    const Selection selection = select(stage, machine, options, nullptr);
    views.push_back(
        {to_text(stage), where_of(machine, stored), explain(stage, machine, selection)});
  } catch (const Error& error) {
    why_not.push_back(
        fmt::format("{} on {}: {}", to_text(stage), where_of(machine, stored), error.what()));
  }
}

}  // namespace

std::vector<StageView> view_stages(const std::vector<Stage>& stages,
                                   std::vector<std::string>& why_not) {
  std::vector<StageView> views;
  const std::optional<GpuFacts> gpu = gpu_facts();
  for (const Stage& stage : stages) {
    // 16-bit stages are what a GPU is for; those of f32 are a CPU's business first.
    const bool half = stage.dtype == DType::f16 || stage.dtype == DType::bf16;
    if (half && gpu) add_view(stage, gpu->machine, gpu->stored, views, why_not);
    add_view(stage, cpu_machine(), false, views, why_not);
    if (!half && gpu) add_view(stage, gpu->machine, gpu->stored, views, why_not);
  }
  return views;
}

bool has_gpu_kernels() {
  return gpu_facts().has_value();
}

Html stages_section(const std::vector<StageView>& views, const std::vector<MappedStage>& mapped,
                    const Results& results, const std::vector<std::string>& why_not) {
  Html text;
  for (std::size_t i = 0; i < views.size();) {
    const std::string& stage = views[i].stage;
    text += html("<h3>{}</h3>\n<p>{}.</p>\n", code(stage), escape(views[i].explanation.sentence));
    text += details("Sizes", sizes_table(views[i].explanation));
    for (; i < views.size() && views[i].stage == stage; ++i) text += view_html(views[i]);
    for (const MappedStage& one : mapped)
      if (one.stage == stage) text += one.html;
    text += html("<h4>Measured</h4>\n") + measured_table(stage, results);
  }
  for (const std::string& why : why_not) text += html("<p>{}</p>\n", escape(why));
  if (text.empty()) return {};
  if (!has_gpu_kernels())
    text = html(
        "<p>This convoy was built without GPU kernels: their predictions and refusals are missing. "
        "A build with the preset <code>cuda</code> has them, also without a GPU."
        "</p>\n{}",
        text);
  return section("stages", "Stages: kernels, maps, shared memory, pipelines", text);
}

}  // namespace convoy::report
