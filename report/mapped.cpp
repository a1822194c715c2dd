// How a kernel lays a stage out: its map, shared memory and pipeline, as the kernel's own functions
// give them (inspect/kernel_map).
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "convoy/error.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "plan/select.hpp"
#include "report/gpu_facts.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

using inspect::KernelMap;
using inspect::Pipeline;
using inspect::SharedMemoryMap;

Html bulleted(const std::vector<std::string>& lines) {
  Html items;
  for (const std::string& line : lines) items += html("<li>{}", escape(line));
  return html("<ul>{}</ul>\n", items);
}

Html bytes_number(Index bytes) {
  return html("{} bytes", grouped(static_cast<double>(bytes)));
}

Html map_table(const KernelMap& map) {
  Table table("Map", {{"what"}, {"value"}, {"is", prose_column}});
  for (const inspect::MapFact& fact : map.facts())
    table.add({escape(fact.name), escape(fact.value), escape(fact.note)});
  std::string tiles;
  for (const inspect::TilePlace& tile : map.first_tiles(12))
    tiles += fmt::format("{}({}, {})", tiles.empty() ? "" : " ", tile.x, tile.y);
  return table.html() +
         html("<p>Order of tiles: {} The first: {}.</p>\n", escape(map.order()), code(tiles));
}

// A part of an axis, for a table's cell.
Html part_cell(double from, double to, double all) {
  return html(
      "<svg class=cell><rect class=track width=100% height=12 y=3 /><rect class=c0 x={:.1f}% "
      "width={:.1f}% height=12 y=3 /></svg>",
      100 * from / all, std::max(0.8, 100 * (to - from) / all));
}

Html regions_table(const SharedMemoryMap& shared) {
  Table table(
      "Parts of shared memory",
      {{"from", number_column}, {"bytes", number_column}, {"part"}, {""}, {"holds", prose_column}});
  for (const inspect::SharedRegion& region : shared.regions)
    table.add({grouped(region.begin), grouped(region.bytes), escape(region.name),
               part_cell(region.begin, region.begin + region.bytes, std::max(1, shared.bytes)),
               escape(region.what)});
  return table.html();
}

// A phase of a warp's access: 32 banks, empty, read by a lane, or with words that collide.
Html banks_drawing(const inspect::BankUse& use) {
  if (use.phases.empty()) return {};
  const std::string& picture = use.phases.front().picture;
  Html text = html("<svg class=banks>");
  const double width = 100.0 / static_cast<double>(std::max<std::size_t>(1, picture.size()));
  for (std::size_t bank = 0; bank < picture.size(); ++bank) {
    const char lane = picture[bank];
    const std::string_view color = lane == '.'   ? "track"
                                   : lane == '#' ? "lost"
                                   : lane % 2    ? "c0"
                                                 : "c0 odd";
    text += html("<rect class=\"{}\" x={:.2f}% width={:.2f}% height=14 />", escape(color),
                 width * static_cast<double>(bank), width * 0.86);
  }
  return text + html("</svg>{}", code(picture));
}

Html access_html(const inspect::SharedAccess& access) {
  const auto count = [](const inspect::BankUse& use) {
    return html("{} for {}, {}", counted(use.wavefronts, "wavefront"), use.least,
                counted(use.conflicts(), "conflict"));
  };
  Html text = html("<h5>{}: {}</h5>\n<p>{}</p>\n<p>As stored: {}.</p>\n{}\n", escape(access.name),
                   escape(access.instruction), escape(access.who), count(access.use),
                   banks_drawing(access.use));
  text += html("<p>Without swizzle or padding: {}.</p>\n{}\n", count(access.plain),
               banks_drawing(access.plain));
  if (access.instructions > 0)
    text += html(
        "<p>Per tile: {} instructions, {} conflicts; {} without swizzle or "
        "padding.</p>\n",
        grouped(access.instructions), grouped(access.conflicts), grouped(access.plain_conflicts));
  return text;
}

std::string first_of(const std::vector<int>& values, const char* before) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(16, values.size()); ++i)
    text += fmt::format("{}{}{}", i ? " " : "", before, values[i]);
  return text + (values.size() > 16 ? " …" : "");
}

Html shared_html(const SharedMemoryMap& shared) {
  Html text = html("<ul><li>{} of a CTA<li>{}<li>{}</ul>\n{}", bytes_number(shared.bytes),
                   escape(shared.layout), escape(shared.protects), regions_table(shared));
  if (!shared.accesses.empty())
    text += html(
        "<p>A warp’s accesses, bank by bank (32 of 4 bytes): a digit is the lane, a dot none, # "
        "two words of one bank. The first phase is drawn.</p>\n");
  for (const inspect::SharedAccess& access : shared.accesses) text += access_html(access);
  if (!shared.accumulators.empty()) {
    Table table("Accumulators of thread 0", {{"row", number_column}, {"registers"}, {"columns"}});
    for (const inspect::AccumulatorRow& row : shared.accumulators)
      table.add({html("{}", row.row), code(first_of(row.registers, "R")),
                 code(first_of(row.columns, ""))});
    text += html("<h5>Accumulators of thread 0</h5>\n<p>{}</p>\n{}",
                 escape(shared.accumulator_order), table.html());
  }
  if (!shared.epilogue.empty())
    text += html("<h5>How results leave</h5>\n{}", bulleted(shared.epilogue));
  return text;
}

constexpr int line_pixels = 22;

/// Slots as columns, time downwards.
class PipelineDrawing {
 public:
  explicit PipelineDrawing(const Pipeline& pipeline) : pipeline_(pipeline) {
    for (const inspect::PipelineRing& ring : pipeline.rings) {
      first_slot_.push_back(slots_);
      slots_ += std::max(1, ring.slots);
    }
  }

  Html svg() const {
    Html text;
    const auto& lines = pipeline_.lines;
    for (std::size_t ring = 0; ring < pipeline_.rings.size(); ++ring) ring_head(ring, text);
    int y = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (pipeline_.left_out > 0 && i == pipeline_.left_out_at) {
        text += html(
            "<text class=tick x=\"50%\" y=\"{}\" text-anchor=\"middle\">{} steps alike</text>\n",
            y + 15, pipeline_.left_out);
        y += line_pixels;
      }
      line(lines[i], y, text);
      y += line_pixels;
    }
    return html(
        "<div class=\"plot pipe\"><svg class=chart role=img height=\"{}\" aria-label=\"Pipeline "
        "of {}\">\n{}</svg></div>\n",
        y, escape(pipeline_.kernel + " " + pipeline_.tile), text);
  }

 private:
  double share(int slot) const { return 100.0 * slot / std::max(1, slots_); }

  void ring_head(std::size_t ring, Html& text) const {
    const int first = first_slot_[ring], count = std::max(1, pipeline_.rings[ring].slots);
    text += html("<text class=tick x=\"{:.1f}%\" y=\"-22\" text-anchor=\"middle\">{}</text>\n",
                 share(first) + 50.0 * count / slots_, escape(pipeline_.rings[ring].name));
    for (int slot = 0; slot < count; ++slot)
      text += html("<text class=tick x=\"{:.1f}%\" y=\"-7\" text-anchor=\"middle\">{}</text>\n",
                   share(first + slot) + 50.0 / slots_, slot);
  }

  // The left half of a slot's column is math, the right half a load.
  void box(int slot, bool load, int y, Index number, const std::string& title, Html& text) const {
    const double width = 50.0 / slots_, x = share(slot) + (load ? width : 0);
    text += html(
        "<rect class=\"{}\" x=\"{:.2f}%\" width=\"{:.2f}%\" y=\"{}\" height=\"{}\"><title>{}"
        "</title></rect>",
        load ? html("load") : html("math"), x, width * 0.94, y + 1, line_pixels - 2, escape(title));
    // On a phone a long number may have no room.
    const auto digits = static_cast<double>(std::to_string(number).size());
    const bool fits = 7.0 * digits + 2 < narrowest_plot / (2.0 * slots_);
    text += html("<text{} x=\"{:.2f}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                 fits ? Html() : html(" class=desk"), x + width * 0.47, y + 15, number);
  }

  void line(const inspect::PipelineLine& line, int y, Html& text) const {
    text += html("<text class=tick x=\"-7\" y=\"{}\" text-anchor=\"end\">{}</text>", y + 15,
                 line.step < 0 ? html("begin") : html("step {}", line.step));
    text +=
        html("<line class=grid x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>\n", y + line_pixels);
    for (std::size_t ring = 0; ring < line.math_slots.size() && ring < first_slot_.size(); ++ring)
      if (line.step >= 0 && line.math_slots[ring] >= 0)
        box(first_slot_[ring] + line.math_slots[ring], false, y, line.step,
            fmt::format("step {}: math", line.step), text);
    for (const inspect::PipelineLoad& load : line.loads)
      box(first_slot_[static_cast<std::size_t>(load.ring)] + load.slot, true, y, load.load,
          fmt::format("load {}: {}", load.load, load.what), text);
  }

  const Pipeline& pipeline_;
  std::vector<int> first_slot_;
  int slots_ = 0;
};

Html pipeline_table(const Pipeline& pipeline) {
  Table table(
      "Steps of the pipeline",
      {{"step"}, {"math on", prose_column}, {"loads", prose_column}, {"waits", prose_column}});
  const auto ring_name = [&](std::size_t ring) {
    return ring < pipeline.rings.size() ? pipeline.rings[ring].name : std::string("slot");
  };
  for (std::size_t i = 0; i < pipeline.lines.size(); ++i) {
    if (pipeline.left_out > 0 && i == pipeline.left_out_at)
      table.add({html("…"), html("{} steps alike", pipeline.left_out)});
    const inspect::PipelineLine& line = pipeline.lines[i];
    Html math;
    for (std::size_t ring = 0; ring < line.math_slots.size(); ++ring)
      if (line.step >= 0 && line.math_slots[ring] >= 0)
        math += html("{}{}, slot {}", math.empty() ? Html() : html("; "), escape(ring_name(ring)),
                     line.math_slots[ring]);
    const Html loads = joined(line.loads, "; ", [&](const inspect::PipelineLoad& load) {
      return html("{} {} → slot {} ({})", escape(ring_name(static_cast<std::size_t>(load.ring))),
                  load.load, load.slot, escape(load.what));
    });
    table.add(
        {line.step < 0 ? html("begin") : html("{}", line.step), math, loads, escape(line.waits)});
  }
  return table.html();
}

Html pipeline_html(const Pipeline& pipeline) {
  Html text = html("<ul>");
  for (const inspect::PipelineRing& ring : pipeline.rings)
    text += html("<li>{}: {} slots of {}, {} loads {}", escape(ring.name), ring.slots,
                 bytes_number(ring.slot_bytes), ring.loads, escape(pipeline.per));
  text += html("</ul>\n");
  Table actors(
      "Who takes part",
      {{"who"}, {"threads", number_column}, {"does", prose_column}, {"waits for", prose_column}});
  for (const inspect::PipelineActor& actor : pipeline.actors)
    actors.add(
        {escape(actor.name), html("{}", actor.threads), escape(actor.does), escape(actor.waits)});
  return text + actors.html() +
         figure(
             "Slots as columns, time downwards: which step multiplies the content of a slot, and "
             "which load begins to fill it meanwhile",
             legend({{"c0", "math of this step"}, {"c1", "load of this number"}}),
             PipelineDrawing(pipeline).svg()) +
         details("The same as a table, with who waits for whom", pipeline_table(pipeline)) +
         bulleted(pipeline.notes);
}

// "2 slots of pixels, 65,536 bytes each (8 x 4 x 16 pixels ...): the first holds channels 0-63".
Html slots_answer(const KernelMap& map, const Pipeline& pipeline, const SharedMemoryMap* shared) {
  Html text;
  for (std::size_t ring = 0; ring < pipeline.rings.size(); ++ring) {
    const inspect::PipelineRing& of = pipeline.rings[ring];
    text += html("<li><b>{} of {}</b>, {} each", counted(of.slots, "slot"), escape(of.name),
                 bytes_number(of.slot_bytes));
    if (shared)
      for (const inspect::SharedRegion& region : shared->regions)
        if (region.name.starts_with(of.name) && region.name.ends_with("slot 0"))
          text += html(": {}", escape(region.what));
    for (const inspect::PipelineLine& line : pipeline.lines) {
      const auto load = std::find_if(line.loads.begin(), line.loads.end(), [&](const auto& one) {
        return one.ring == static_cast<int>(ring);
      });
      if (load == line.loads.end()) continue;
      text += html(". The first load brings {}", escape(load->what));
      break;
    }
    text += html(".");
  }
  return html("<p>{}, laid out by <b>{} {}</b> for {}:</p>\n<ul>{}</ul>\n",
              code(to_text(map.stage())), escape(map.kernel()), escape(map.tile()),
              escape(map.machine()), text);
}

// What a map has, or nothing where the kernel has nothing of the kind.
template <class Get>
auto where_there_is(Get get) -> std::optional<decltype(get())> {
  try {
    return get();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The kernel and tile that the planner takes on an H200; none where this build can't say.
std::optional<std::pair<std::string, std::string>> chosen_on_h200(const Stage& stage) {
  const std::optional<Machine> machine = h200_facts();
  if (!machine) return std::nullopt;
  PlanOptions options;
  options.device = machine->device;
  const auto selection =
      where_there_is([&] { return select(Chain(stage), *machine, options, nullptr); });
  if (!selection) return std::nullopt;
  return std::pair(std::string(selection->kernel().name()), selection->tile.tile.name);
}

void add_mapped(const KernelMap& map, const Html& note, MappedStage& mapped) {
  mapped.html += html("<h4>Map of {} {} for {}</h4>\n{}", escape(map.kernel()), escape(map.tile()),
                      escape(map.machine()), note);
  mapped.html += details("Map: sizes, grid, order of tiles", map_table(map));
  const auto shared = where_there_is([&] { return map.shared_memory(); });
  const auto pipeline = where_there_is([&] { return map.pipeline(); });
  if (shared) mapped.html += details("Shared memory, bank by bank", shared_html(*shared));
  if (!pipeline) return;
  mapped.html += details("Pipeline, slot by slot", pipeline_html(*pipeline));
  mapped.slots += slots_answer(map, *pipeline, shared ? &*shared : nullptr);
}

}  // namespace

std::vector<MappedStage> map_stages(const std::vector<Stage>& stages) {
  std::vector<MappedStage> all;
  for (const Stage& stage : stages) {
    MappedStage mapped;
    mapped.stage = to_text(stage);
    const bool half = stage.dtype == DType::f16 || stage.dtype == DType::bf16;
    inspect::MapRequest request;
    request.stage = stage;
    request.device = half ? "h200" : "cpu";
    Html note;
    if (half) {
      const auto chosen = chosen_on_h200(stage);
      if (!chosen) {
        note = html(
            "<p>By <code>halo</code> if it can run the stage, else by <code>window</code>. A build "
            "with GPU kernels shows which kernel and tile the planner takes.</p>\n");
      } else if (inspect::is_mapped_on_gpu(chosen->first)) {
        request.kernel = chosen->first, request.tile = chosen->second;
      } else {
        note = html(
            "<p>The planner takes {}, which has no map. This is another kernel that can run the "
            "stage.</p>\n",
            code(chosen->first));
      }
    }
    if (const auto map = where_there_is([&] { return inspect::make_kernel_map(request); }))
      add_mapped(**map, note, mapped);
    all.push_back(std::move(mapped));
  }
  return all;
}

}  // namespace convoy::report
