// An Explanation as text for a person and as JSON for a program.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "plan/explain.hpp"

namespace convoy {
namespace {

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string bytes_text(double bytes) {
  if (bytes == 0) return "-";
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.2f} MB", bytes * 1e-6);
  return fmt::format("{:.2f} GB", bytes * 1e-9);
}

std::string grouped(Index value) {
  std::string digits = fmt::format("{}", value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", share * 100);
}

void heading(std::string& text, std::string_view title) {
  text += fmt::format("\n{}\n", title);
}

std::string sizes_text(const Explanation& e) {
  std::string text;
  heading(text, "Sizes");
  for (const auto& size : e.sizes) {
    text += fmt::format("  {:<7} {:<38} {}\n", size.symbol, size.meaning, grouped(size.value));
    text += fmt::format("  {:<7} = {}\n", "", size.formula);
    if (size.numbers != size.formula) text += fmt::format("  {:<7} = {}\n", "", size.numbers);
  }
  return text;
}

std::string kernels_text(const Explanation& e) {
  std::string text;
  heading(text, "Kernels");
  std::size_t width = 24;
  for (const auto& line : e.kernels) width = std::max(width, line.arithmetic.size());
  text += fmt::format("  {:<16} {:<{}} {:>12} {:>12}  {}\n", "kernel", "arithmetic", width,
                      "predicted", "measured", "verdict");
  for (const auto& line : e.kernels) {
    const bool fits = line.refusals.empty();
    text += fmt::format("{} {:<16} {:<{}} {:>12} {:>12}  ", line.chosen ? ">" : " ", line.kernel,
                        line.arithmetic, width, fits ? time_text(line.predicted.seconds) : "",
                        line.measured ? time_text(line.measured->median) : "");
    if (line.chosen)
      text += "chosen\n";
    else if (fits)
      text += line.arithmetic == e.arithmetic ? "fits\n" : "fits, in another arithmetic\n";
    for (std::size_t i = 0; i < line.refusals.size(); ++i)
      text += fmt::format("{}{}\n", i ? std::string(46 + width, ' ') : "refuses: ",
                          i ? "         " + line.refusals[i] : line.refusals[i]);
  }
  return text;
}

std::string choice_text(const Explanation& e) {
  std::string text;
  heading(text, "Choice");
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("  {:<11} {}\n", label, value);
  };
  line("mode",
       e.stage.exact()
           ? fmt::format("exact on small integers, because of {}",
                         e.stage.strict ? "+strict" : "the neuron")
           : "default: any arithmetic whose error is within the bound of docs/trust/numbers.md");
  line("arithmetic", fmt::format("{}: {}", e.arithmetic, e.why_arithmetic));
  line("kernel", e.kernel);
  line("tile", fmt::format("{}: {}", e.tile, e.why_tile));
  if (e.parts.count > 1)
    line("parts",
         fmt::format(
             "{} runs of at most {} images: the kernel takes no more at once, and the choice of "
             "the kernel must not depend on n{}",
             e.parts.count, e.parts.images,
             e.parts.copied
                 ? "; each is copied to workspace and back, because its time steps are not adjacent"
                 : ""));
  line(
      "waste",
      fmt::format("{} of its {:.4g} GFLOP are for padding of tiles and channels, and are discarded",
                  percent(e.predicted.waste), e.predicted.flops * 1e-9));
  if (e.workspace_bytes)
    line("workspace",
         *e.workspace_bytes ? bytes_text(static_cast<double>(*e.workspace_bytes)) : "none");
  return text;
}

std::string peak_of(const Explanation& e) {
  if (e.machine.device.kind == DeviceKind::cuda)
    return e.on_tensor_cores() ? "tensor cores' peak" : "FMA peak";
  return fmt::format("FMA peak of {} {}", e.machine.threads,
                     e.machine.threads == 1 ? "thread" : "threads");
}

std::string time_lines(const Explanation& e) {
  std::string text;
  heading(text, "Time");
  const auto line = [&](std::string_view label, double seconds, const std::string& note) {
    text += fmt::format("  {:<17} {:>12}  {}\n", label, time_text(seconds), note);
  };
  const bool gpu = e.machine.device.kind == DeviceKind::cuda;
  const char* source = e.machine_measured ? "measured just now" : "an estimate, not measured";
  line("floor, arithmetic", e.compute_floor,
       fmt::format("{:.4g} GFLOP of a direct convolution at {:.1f} GFLOP/s, the {} ({})",
                   e.operations() * 1e-9, e.operations() / e.compute_floor * 1e-9, peak_of(e),
                   gpu ? "at its highest clock" : source));
  line("floor, memory", e.memory_floor,
       fmt::format("{} at {:.1f} GB/s, the {}", bytes_text(e.fused_bytes()),
                   e.machine.memory_bandwidth * 1e-9,
                   gpu ? std::string("memory's clock times its width")
                       : fmt::format("speed of a copy ({})", source)));
  line("predicted", e.predicted.seconds,
       "by the kernel's cost model, for this peak and this copy speed");
  if (e.tuned_seconds) line("tuned", *e.tuned_seconds, "when its tile was measured");
  if (e.measured) {
    line("measured", e.measured->median,
         fmt::format("median of {} runs, the fastest {}; {:.2f} times the prediction",
                     e.measured->runs, time_text(e.measured->minimum),
                     e.measured->median / e.predicted.seconds));
    const double share = e.compute_floor / e.measured->median;
    text +=
        fmt::format("  {:<17} {:>12}  of the {} peak, in operations of a direct convolution{}\n",
                    "share of peak", percent(share), e.on_tensor_cores() ? "tensor cores'" : "FMA",
                    share > 1 ? ": the arithmetic needs fewer" : "");
  } else if (!e.not_measured.empty()) {
    text += fmt::format("  {:<17} {:>12}  {}\n", "measured", "no", e.not_measured);
  }
  return text;
}

std::string traffic_text(const Explanation& e) {
  std::string text;
  heading(text, "Memory traffic of one run");
  text += fmt::format("  {:<34} {:>12} {:>12}\n", "", "fused", "unfused");
  for (const auto& line : e.traffic)
    text += fmt::format("  {:<34} {:>12} {:>12}\n", line.what, bytes_text(line.fused),
                        bytes_text(line.unfused));
  text += fmt::format("  {:<34} {:>12} {:>12}  {:.2f} times as much\n", "in all",
                      bytes_text(e.fused_bytes()), bytes_text(e.unfused_bytes()),
                      e.unfused_bytes() / e.fused_bytes());
  return text;
}

nlohmann::ordered_json json_of(const Timing& timing) {
  return {{"median_seconds", timing.median},
          {"minimum_seconds", timing.minimum},
          {"runs", timing.runs}};
}
nlohmann::ordered_json json_of(const Cost& cost) {
  return {{"seconds", cost.seconds},
          {"flops", cost.flops},
          {"waste", cost.waste},
          {"bytes", cost.bytes}};
}

std::string threads_text(const Explanation& e) {
  std::string used =
      fmt::format("{} {}", e.machine.threads, e.machine.threads == 1 ? "thread" : "threads");
  if (e.machine.threads == e.threads_at_most) return used;
  return fmt::format("{} of {}: starting the others would take longer than they save", used,
                     e.threads_at_most);
}

}  // namespace

std::string to_text(const Explanation& e) {
  std::string text = to_text(e.stage) + "\n" + e.sentence + ".\n";
  text += sizes_text(e);
  heading(text, "Machine");
  if (e.machine.device.kind == DeviceKind::cuda)
    text += fmt::format("  {}, {}, {} multiprocessors\n", e.machine.name, e.machine.isa,
                        e.machine.multiprocessors);
  else
    text += fmt::format("  {}, {}, {}\n", e.machine.name, e.machine.isa, threads_text(e));
  if (!e.machine.warning.empty()) text += fmt::format("  Warning: {}.\n", e.machine.warning);
  text += kernels_text(e) + choice_text(e) + time_lines(e) + traffic_text(e);
  if (!e.warning.empty()) text += fmt::format("\nWarning: {}\n", e.warning);
  return text;
}

std::string to_json(const Explanation& e) {
  using Json = nlohmann::ordered_json;
  Json sizes = Json::object();
  for (const auto& size : e.sizes)
    sizes[size.symbol] = {{"meaning", size.meaning},
                          {"formula", size.formula},
                          {"numbers", size.numbers},
                          {"value", size.value}};
  Json kernels = Json::array();
  for (const auto& line : e.kernels) {
    Json row = {{"kernel", line.kernel}, {"arithmetic", line.arithmetic},
                {"exact", line.exact},   {"fits", line.refusals.empty()},
                {"chosen", line.chosen}, {"refusals", line.refusals}};
    if (line.refusals.empty()) {
      row["tile"] = line.tile, row["predicted"] = json_of(line.predicted);
      if (line.parts > 1) row["parts"] = line.parts;
    }
    if (line.measured) row["measured"] = json_of(*line.measured);
    kernels.push_back(std::move(row));
  }
  Json traffic = Json::array();
  for (const auto& line : e.traffic)
    traffic.push_back(
        {{"what", line.what}, {"fused_bytes", line.fused}, {"unfused_bytes", line.unfused}});
  Json json = {
      {"stage", to_text(e.stage)},
      {"in_words", e.sentence},
      {"sizes", std::move(sizes)},
      {"machine",
       {{"device", to_text(e.machine.device)},
        {"name", e.machine.name},
        {"isa", e.machine.isa},
        {"threads", e.machine.threads},
        {"threads_at_most", e.threads_at_most},
        {"peak_flops", e.on_tensor_cores() ? e.machine.tensor_flops : e.machine.peak_flops},
        {"copy_bytes_per_second", e.machine.memory_bandwidth},
        {"measured", e.machine_measured}}},
      {"kernels", std::move(kernels)},
      {"mode", e.stage.exact() ? "exact" : "default"},
      {"arithmetic", e.arithmetic},
      {"why_arithmetic", e.why_arithmetic},
      {"kernel", e.kernel},
      {"tile", e.tile},
      {"why_tile", e.why_tile},
      {"predicted", json_of(e.predicted)},
      {"floor", {{"arithmetic_seconds", e.compute_floor}, {"memory_seconds", e.memory_floor}}},
      {"traffic", std::move(traffic)},
      {"fused_bytes", e.fused_bytes()},
      {"unfused_bytes", e.unfused_bytes()}};
  if (e.parts.count > 1)
    json["parts"] = {
        {"count", e.parts.count}, {"images", e.parts.images}, {"copied", e.parts.copied}};
  if (e.tuned_seconds) json["tuned_seconds"] = *e.tuned_seconds;
  if (e.measured) {
    json["measured"] = json_of(*e.measured);
    json["share_of_peak"] = e.compute_floor / e.measured->median;
  }
  if (!e.not_measured.empty()) json["not_measured"] = e.not_measured;
  if (e.workspace_bytes) json["workspace_bytes"] = *e.workspace_bytes;
  if (!e.warning.empty()) json["warning"] = e.warning;
  return json_text(json, 2);
}

}  // namespace convoy
