#include "inspect/trace_text.hpp"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <string_view>

#include "core/json.hpp"
#include "inspect/chrome_trace.hpp"
#include "inspect/stage_json.hpp"

namespace convoy::inspect {
namespace {

constexpr double micro = 1e-6;

struct Row {
  const char* name;
  double Phases::*of;
  const char* meaning_gpu;
  const char* meaning_cpu;
};
constexpr Row rows[] = {
    {"head", &Phases::head, "until the first math: launch, barriers, first loads",
     "until the first task"},
    {"loop", &Phases::loop, "from there to the end of the last math",
     "from there to the end of the last task"},
    {"tail", &Phases::tail, "epilogue and store of the last tile", "until the run returns"},
};

bool on_gpu(const TracedStage& traced) {
  return traced.machine.device.kind == DeviceKind::cuda;
}

/// What a run takes of a row of runs: its head lies in part beside the end of the one before.
double in_a_row(const RunTrace& trace) {
  return trace.measured.seconds() - trace.overlap;
}

nlohmann::ordered_json json_of(const Phases& phases) {
  nlohmann::ordered_json json;
  for (const Row& row : rows) json[fmt::format("{}_seconds", row.name)] = phases.*row.of;
  return json;
}

}  // namespace

std::string trace_file(const TracedStage& traced) {
  const RunTrace& trace = traced.trace;
  ChromeTrace file;
  file.tell("stage", to_text(traced.stage));
  file.tell("kernel", traced.kernel);
  file.tell("tile", traced.tile);
  file.tell("machine", traced.machine.name);
  file.tell("clock", trace.clock);
  file.tell("head_us", trace.measured.head / micro);
  file.tell("loop_us", trace.measured.loop / micro);
  file.tell("tail_us", trace.measured.tail / micro);
  std::set<int> groups;
  for (std::size_t track = 0; track < trace.tracks.size(); ++track) {
    const RunTrace::Track& its = trace.tracks[track];
    if (groups.insert(its.group).second) file.name_group(its.group, its.in);
    file.name_track({its.group, static_cast<int>(track)}, its.is);
  }
  const bool gpu = on_gpu(traced);
  for (const RunTrace::Span& span : trace.spans) {
    TraceFacts facts;
    if (span.tile >= 0) facts.emplace_back(gpu ? "tile" : "loop", static_cast<double>(span.tile));
    if (span.part >= 0) facts.emplace_back(gpu ? "slab" : "task", static_cast<double>(span.part));
    const int group = trace.tracks[static_cast<std::size_t>(span.track)].group;
    file.add({group, span.track}, span.what, span.begin, span.end, facts);
  }
  return file.text();
}

std::string trace_text(const TracedStage& traced, const std::string& path) {
  const RunTrace& trace = traced.trace;
  const bool gpu = on_gpu(traced);
  std::string text = fmt::format("{}\n{} {} on {}\n\n", to_text(traced.stage), traced.kernel,
                                 traced.tile, traced.machine.name);
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "{:6}{:>10}{:>14}\n", "us", "traced", "predicted");
  for (const Row& row : rows) {
    const std::string predicted =
        trace.predicted ? fmt::format("{:.2f}", *trace.predicted.*row.of / micro) : "-";
    fmt::format_to(to, "{:6}{:>10.2f}{:>14}   {}\n", row.name, trace.measured.*row.of / micro,
                   predicted, gpu ? row.meaning_gpu : row.meaning_cpu);
  }
  fmt::format_to(to, "{:6}{:>10.2f}{:>14.2f}\n", "all", trace.measured.seconds() / micro,
                 traced.predicted / micro);
  if (gpu)
    fmt::format_to(to,
                   "{:.2f} us of the head overlap with the end of the run before: {:.2f} us per "
                   "run, for runs in sequence.\n",
                   trace.overlap / micro, in_a_row(trace) / micro);
  if (traced.seconds > 0)
    fmt::format_to(to, "Measured without stamps: {:.2f} us{}.\n", traced.seconds / micro,
                   gpu ? fmt::format(" at {:.3f} GHz", traced.hertz * 1e-9) : std::string());
  fmt::format_to(to, "{} under way in {:.1f} % of the loop, as a mean over the {}.\n",
                 gpu ? "Math is" : "Tasks are", 100 * trace.math, gpu ? "CTAs" : "threads");
  fmt::format_to(
      to, "Clock: {}{}\n", trace.clock,
      gpu ? "." : fmt::format(", with a resolution of {:.0f} ns.", trace.resolution / 1e-9));
  if (traced.left_out > 0)
    fmt::format_to(to, "{} tasks are left out, because the log has no room for them.\n",
                   traced.left_out);
  fmt::format_to(to, "Outputs: {} a run without stamps.\n",
                 traced.same_bits ? "the same bits as" : "NOT the bits of");
  fmt::format_to(to, "{}: {} spans on {} tracks. Open it in https://ui.perfetto.dev.\n", path,
                 trace.spans.size(), trace.tracks.size());
  return text;
}

std::string trace_json(const TracedStage& traced, const std::string& path) {
  const RunTrace& trace = traced.trace;
  nlohmann::ordered_json json{{"stage", to_text(traced.stage)},
                              {"device", to_text(traced.machine.device)},
                              {"machine", traced.machine.name},
                              {"kernel", traced.kernel},
                              {"tile", traced.tile},
                              {"traced", json_of(trace.measured)},
                              {"overlap_seconds", trace.overlap},
                              {"in_a_row_seconds", in_a_row(trace)}};
  if (trace.predicted) json["predicted"] = json_of(*trace.predicted);
  json["predicted_seconds"] = traced.predicted;
  if (traced.seconds > 0) json["untraced_seconds"] = traced.seconds;
  if (traced.hertz > 0) json["untraced_clock_hz"] = traced.hertz;
  json["math_share"] = trace.math;
  json["clock"] = trace.clock;
  if (trace.hertz > 0) json["clock_hz"] = trace.hertz;
  json["resolution_seconds"] = trace.resolution;
  json["same_bits"] = traced.same_bits;
  json["left_out_tasks"] = traced.left_out;
  json["file"] = path;
  json["spans"] = trace.spans.size();
  json["tracks"] = trace.tracks.size();
  return json_text(json, 2);
}

}  // namespace convoy::inspect
