// Golden choices: which kernel and tile the cost models pick for many stages on stored machines,
// and how long they say that it takes. A changed constant shows here what it changes.
//
//   choices --check FILE...     exit code 1 and a line for each stage whose choice or time differs
//   choices --write FILE...     predicts the stages of each file again
//   choices --explain FILE STAGE
//                               prints the output of `convoy explain STAGE --no-measure` on the
//                               machine of the file: docs/learn/explain.md shows it
//
// A file begins with its machine ("# isa avx512 halves 1 l1 32768 ... threads 2"); a line a stage
// follows: its text, the kernel, the tile and the predicted microseconds, with tabs between them. A
// new stage is its text alone, before --write.
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "convoy/error.hpp"
#include "plan/explain.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

struct Choice {
  std::string stage, kernel, tile;
  double microseconds = 0;

  std::string text() const {
    return fmt::format("{}\t{}\t{}\t{:.4g}", stage, kernel, tile, microseconds);
  }
  /// Times are stored with four digits.
  bool equals(const Choice& other) const {
    return kernel == other.kernel && tile == other.tile &&
           std::abs(microseconds - other.microseconds) <= 1e-3 * microseconds;
  }
};

struct ChoiceFile {
  std::vector<std::string> head;
  Machine machine;
  std::vector<Choice> choices;
};

Machine machine_of(const std::string& path, const std::string& line) {
  std::istringstream words(line.substr(1));
  Machine machine;
  machine.device.kind = DeviceKind::cpu;
  int threads = 0;
  std::string key, isa;
  while (words >> key) {
    if (key == "isa")
      words >> isa;
    else if (key == "halves")
      words >> machine.halves;
    else if (key == "mesh")
      words >> machine.mesh;
    else if (key == "l1")
      words >> machine.l1_bytes;
    else if (key == "l2")
      words >> machine.l2_bytes;
    else if (key == "l3")
      words >> machine.l3_bytes;
    else if (key == "threads")
      words >> threads;
    else
      throw Error(fmt::format(
          "{}: \"{}\" in its first line: expected isa, halves, mesh, l1, l2, l3 or threads", path,
          key));
  }
  set_isa(machine, isa);
  return with_threads(machine, threads);
}

ChoiceFile read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(path + ": can't be read");
  ChoiceFile read;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) {
      if (read.head.empty()) read.machine = machine_of(path, line);
      read.head.push_back(line);
      continue;
    }
    std::istringstream fields(line);
    Choice choice;
    std::string time;
    std::getline(fields, choice.stage, '\t');
    std::getline(fields, choice.kernel, '\t');
    std::getline(fields, choice.tile, '\t');
    if (fields >> time) choice.microseconds = std::stod(time);
    read.choices.push_back(choice);
  }
  if (read.head.empty() || read.choices.empty())
    throw Error(path + ": expected a machine in its first line and stages behind it");
  return read;
}

Choice choose(const std::string& text, const Machine& machine) {
  PlanOptions options;
  options.use_tuning = false;
  const Selection selection = select(parse_stage(text), machine, options, nullptr);
  return {text, std::string(selection.kernel().name()), selection.tile.tile.name,
          selection.tile.cost.seconds * 1e6};
}

void explain_on(const std::string& path, const std::string& text) {
  Machine machine = read(path).machine;
  machine.name = path;
  PlanOptions options;
  options.use_tuning = false;
  const Stage stage = parse_stage(text);
  fmt::print("{}", to_text(explain(stage, machine, select(stage, machine, options, nullptr))));
}

void write(const std::string& path) {
  ChoiceFile known = read(path);
  std::ofstream file(path);
  for (const std::string& line : known.head) file << line << "\n";
  for (const Choice& choice : known.choices)
    file << choose(choice.stage, known.machine).text() << "\n";
  file.close();
  if (!file) throw Error(path + ": can't be written");
}

std::size_t check(const std::string& path) {
  const ChoiceFile known = read(path);
  std::size_t different = 0;
  for (const Choice& was : known.choices) {
    const Choice is = choose(was.stage, known.machine);
    if (is.equals(was)) continue;
    ++different;
    fmt::print("- {}\n+ {}\n", was.text(), is.text());
  }
  fmt::print("{}: {} of {} choices differ\n", path, different, known.choices.size());
  return different;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--explain" && argc == 4) {
    explain_on(argv[2], argv[3]);
    return 0;
  }
  if ((mode != "--check" && mode != "--write") || argc < 3)
    throw Error("expected --check FILE..., --write FILE... or --explain FILE STAGE");
  std::size_t different = 0;
  for (int i = 2; i < argc; ++i) {
    if (mode == "--write")
      write(argv[i]);
    else
      different += check(argv[i]);
  }
  if (different > 0)
    fmt::print("Where these changes are meant: choices --write tests/choices/*.txt\n");
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace convoy

int main(int argc, char** argv) {
  try {
    return convoy::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "choices: {}\n", error.what());
    return 2;
  }
}
