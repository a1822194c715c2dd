// Fingerprints: a hash of every output of many stages by every kernel, and of every layer of our
// networks. Code that only moves leaves them as they are.
//
//   fingerprints --write FILE [--device cuda] [--random N] [--lists NAME...]
//   fingerprints --check FILE [--device cuda] [--drawn]
//   fingerprints --renew FILE [--device cuda]     the same stages, where other kernels run them now
//
// A line a stage: its text, then the kernels and networks that gave each hash. A file says of which
// instruction set it is; on the CPU that is the one that CONVOY_ISA asks for.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "convoy/network.hpp"
#include "io/idx.hpp"
#include "plan/select.hpp"
#include "verify/guarded.hpp"
#include "verify/parity.hpp"
#include "verify/source_path.hpp"

namespace convoy::verify {
namespace {

constexpr std::uint64_t seed = 20;

// FNV-1a over whole numbers, with a last mix: good enough to see that bits changed.
class Hash {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size());
  }
  template <class T>
  void add(const T* values, std::size_t count) {
    static_assert(sizeof(T) == 4);
    step(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, values + i, 4);
      step(bits);
    }
  }
  std::string text() const {
    const std::uint64_t mixed = (state_ ^ (state_ >> 31)) * 0x94d049bb133111ebU;
    return fmt::format("{:012x}", mixed >> 16);
  }

 private:
  void step(std::uint64_t value) { state_ = (state_ ^ value) * 0x100000001b3U; }
  std::uint64_t state_ = 0xcbf29ce484222325U;
};

struct Arguments {
  std::string write, check, renew;
  Device device{};
  Index random = 0;
  bool drawn_only = false;
  std::vector<std::string> lists;
};

// The hash of what a kernel gives for a stage, or why it gave nothing.
std::string hash_of_run(const Stage& stage, const Kernel& kernel, Device device) {
  Stage on_device = reference::for_device(stage, device.kind);
  const auto inputs = draw_inputs(on_device, Data::normal, seed);
  PlanOptions options;
  options.device = device;
  options.threads = 1;
  options.kernel = kernel.name();
  options.use_tuning = false;
  const Plan plan(on_device, inputs->weights, options);
  const Result result = run_guarded(plan, *inputs, Views::dense);
  if (!result.error.empty()) return "failed";
  Hash hash;
  hash.add(result.y);
  hash.add(result.pre);
  hash.add(result.act);
  hash.add(result.membrane);
  hash.add(result.idx);
  return hash.text();
}

std::string line_of(const Stage& stage, const Machine& machine) {
  std::map<std::string, std::string> kernels;  // of each hash
  for (const Kernel* kernel : fitting_kernels(stage, machine)) {
    if (kernel->facts().by_name_only) continue;  // nobody gets its bits unasked
    std::string& names = kernels[hash_of_run(stage, *kernel, machine.device)];
    names += (names.empty() ? "" : ",") + std::string(kernel->name());
  }
  std::string line = to_text(stage);
  for (const auto& [hash, names] : kernels) line += " " + hash + "=" + names;
  return line;
}

// Every layer's output, and the labels of a run in batches.
std::string line_of_network(const std::string& folder, Device device) {
  NetworkOptions options;
  options.device = device;
  options.batch = 24;
  const Network network(source_path(folder), options);
  const NetworkText& text = network.text();
  constexpr Index n = 40;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(n * text.h * text.w * text.c));
  Random random(seed);
  for (std::uint8_t& pixel : pixels)
    pixel = static_cast<std::uint8_t>(std::clamp(random.normal() * 64 + 96, 0.0, 255.0));
  Hash hash;
  const auto images = [&](Index count) {
    return TensorView::of(pixels.data(), {count, text.h, text.w, text.c});
  };
  for (const Tensor& layer : network.trace(images(16)))
    hash.add(layer.data<float>(), static_cast<std::size_t>(layer.elements()));
  std::vector<float> logits(static_cast<std::size_t>(n * network.classes()));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
  network
      .run(images(n), TensorView::of(logits.data(), {n, network.classes()}),
           TensorView::of(labels.data(), {n}))
      .or_throw();
  hash.add(logits);
  hash.add(labels);
  return folder + " " + hash.text() + "=network";
}

// Lines in the order of `texts`: stages, or folders of networks (which have a slash).
std::vector<std::string> lines_of(const std::vector<std::string>& texts, const Machine& machine) {
  std::vector<std::string> lines(texts.size());
  std::atomic<std::size_t> done = 0;
  Threads threads(default_threads());
  threads.for_each(static_cast<Index>(texts.size()), [&](Index task, int) {
    const auto i = static_cast<std::size_t>(task);
    try {
      lines[i] = texts[i].find('/') == std::string::npos
                     ? line_of(parse_stage(texts[i]), machine)
                     : line_of_network(texts[i], machine.device);
    } catch (const std::exception& error) {
      lines[i] = fmt::format("{} failed: {}", texts[i], error.what());
    }
    if (++done % 500 == 0) fmt::print(stderr, "{} of {}\n", done.load(), texts.size());
  });
  return lines;
}

constexpr const char* networks[] = {"models/fashion-scnn", "tests/golden/networks/dense",
                                    "tests/golden/networks/scnn2"};

std::vector<std::string> texts_to_write(const Arguments& arguments) {
  std::vector<std::string> texts(std::begin(networks), std::end(networks));
  std::set<std::string> seen;
  const bool gpu = arguments.device.kind == DeviceKind::cuda;
  for (const std::string& list : arguments.lists) {
    for (Stage stage : read_shape_list(source_path("shapes/") + list + ".txt")) {
      stage.n = 1;  // bits don't depend on it
      if (gpu && stage.dtype == DType::f32) stage.dtype = DType::f16;
      if (!gpu && stage.dtype == DType::f16) stage.dtype = DType::f32;
      if (seen.insert(to_text(stage)).second) texts.push_back(to_text(stage));
    }
  }
  texts.emplace_back("# drawn");
  Random random(seed);
  for (Index i = 0; i < arguments.random; ++i)
    texts.push_back(to_text(draw_stage(random, arguments.device.kind)));
  return texts;
}

// What a file of fingerprints is of: an instruction set, or a GPU.
std::string kind_of(const Machine& machine) {
  return "# of " + (machine.isa.empty() ? machine.name : machine.isa);
}
// And on a CPU, in its first line, the L1: the arithmetic of its `few_filters` depends on its size.
std::string l1_of(const Machine& machine) {
  return machine.l1_bytes == 0 ? "" : fmt::format(", {} KiB of L1", machine.l1_bytes >> 10);
}

// A line without what another L1 changes: the hash of `few_filters`, and of networks, which may run
// layers by it.
std::string without_l1(const std::string& line) {
  std::istringstream words(line);
  std::string word, kept;
  words >> kept;
  if (kept.find('/') != std::string::npos) return kept;
  constexpr std::string_view name = "few_filters";
  while (words >> word) {
    const std::size_t at = word.find(name);
    if (at == std::string::npos) {
      kept += " " + word;
    } else if (const bool alone = word.size() == at + name.size() && word[at - 1] == '='; !alone) {
      const bool last = word.size() == at + name.size();
      kept += " " + word.erase(last ? at - 1 : at, name.size() + 1);  // and a comma
    }
  }
  return kept;
}

int write(const Arguments& arguments, const Machine& machine) {
  std::vector<std::string> texts = texts_to_write(arguments);
  const auto drawn = std::find(texts.begin(), texts.end(), "# drawn");
  const auto listed = static_cast<std::size_t>(drawn - texts.begin());
  texts.erase(drawn);
  const std::vector<std::string> lines = lines_of(texts, machine);
  std::ofstream file(arguments.write);
  file << kind_of(machine) << l1_of(machine) << "\n";
  for (std::size_t i = 0; i < lines.size(); ++i)
    file << (i == listed ? "# drawn\n" : "") << lines[i] << "\n";
  file.close();
  return file ? 0 : 2;
}

int check(const Arguments& arguments, const Machine& machine) {
  std::ifstream file(arguments.check);
  std::string line;
  std::getline(file, line);
  const std::string mine = kind_of(machine) + l1_of(machine);
  if (line.substr(0, line.find(',')) != kind_of(machine)) {
    fmt::print("skipped: {} is \"{}\", this machine is \"{}\"\n", arguments.check, line, mine);
    return 0;
  }
  const bool same_l1 = line == mine;
  if (!same_l1)
    fmt::print("without few_filters and networks: {} is \"{}\", this machine is \"{}\"\n",
               arguments.check, line, mine);
  std::vector<std::string> want, texts;
  bool drawn = false;
  while (std::getline(file, line)) {
    if (line == "# drawn") drawn = true;
    if (line[0] == '#' || (arguments.drawn_only && !drawn && line.find('/') == std::string::npos))
      continue;
    want.push_back(line);
    texts.push_back(line.substr(0, line.find(' ')));
  }
  std::vector<std::string> got = lines_of(texts, machine);
  if (!same_l1) {
    std::ranges::transform(want, want.begin(), without_l1);
    std::ranges::transform(got, got.begin(), without_l1);
  }
  std::size_t different = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (got[i] != want[i] && ++different <= 20) fmt::print("was {}\nis  {}\n", want[i], got[i]);
  fmt::print("{} of {} fingerprints differ\n", different, want.size());
  return different == 0 && !want.empty() ? 0 : 1;
}

int renew(const Arguments& arguments, const Machine& machine) {
  std::ifstream stored(arguments.renew);
  std::vector<std::string> lines, texts;
  for (std::string line; std::getline(stored, line);) {
    lines.push_back(line);
    if (line[0] != '#') texts.push_back(line.substr(0, line.find(' ')));
  }
  const std::vector<std::string> now = lines_of(texts, machine);
  std::ofstream file(arguments.renew);
  auto next = now.begin();
  for (const std::string& line : lines) file << (line[0] == '#' ? line : *next++) << "\n";
  file.close();
  return file && !texts.empty() ? 0 : 2;
}

int run(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw Error(word + ": expected a value behind it");
      return argv[i];
    };
    if (word == "--write")
      arguments.write = value();
    else if (word == "--check")
      arguments.check = value();
    else if (word == "--renew")
      arguments.renew = value();
    else if (word == "--device")
      arguments.device = parse_device(value());
    else if (word == "--random")
      arguments.random = std::stoll(value());
    else if (word == "--drawn")
      arguments.drawn_only = true;
    else if (word == "--lists")
      while (i + 1 < argc && argv[i + 1][0] != '-') arguments.lists.emplace_back(argv[++i]);
    else
      throw Error(
          fmt::format("\"{}\": expected --write, --check, --renew, --device, --random, --lists or "
                      "--drawn",
                      word));
  }
  if (!arguments.write.empty() + !arguments.check.empty() + !arguments.renew.empty() != 1)
    throw Error("expected one of --write FILE, --check FILE and --renew FILE");
  PlanOptions options;
  options.device = arguments.device;
  options.threads = 1;
  const Machine machine = machine_for(options);
  if (!arguments.renew.empty()) return renew(arguments, machine);
  return arguments.write.empty() ? check(arguments, machine) : write(arguments, machine);
}

}  // namespace
}  // namespace convoy::verify

int main(int argc, char** argv) {
  try {
    return convoy::verify::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fingerprints: {}\n", error.what());
    return 2;
  }
}
