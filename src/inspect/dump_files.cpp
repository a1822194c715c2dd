#include "inspect/dump_files.hpp"

#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/file_name.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "network/flow.hpp"

namespace convoy::inspect {
namespace {

constexpr int format_version = 1;
constexpr Index most_values = static_cast<Index>(InputFile::most_bytes / sizeof(float));

/// Reads fields of one object of the index; every message names the file and the object.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string place)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) throw wrong("is not an object");
  }
  bool has(const char* name) const { return object_.contains(name); }
  std::string text(const char* name) const { return field(name, &Json::is_string, "a text"); }
  Index integer(const char* name) const {
    return field(name, &Json::is_number_integer, "a whole number");
  }
  double number(const char* name) const { return field(name, &Json::is_number, "a number"); }
  const nlohmann::json& list(const char* name) const {
    return field(name, &Json::is_array, "a list");
  }
  Error wrong(const std::string& what) const {
    return InvalidFile(fmt::format("{}: {}. Write it again with `convoy dump`.", place_, what));
  }

 private:
  using Json = nlohmann::json;
  const Json& field(const char* name, bool (Json::*is)() const noexcept,
                    const char* expected) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw wrong(fmt::format("has no \"{}\"", name));
    if (!((*found).*is)()) throw wrong(fmt::format("\"{}\" is not {}", name, expected));
    return *found;
  }

  const Json& object_;
  std::string place_;
};

OperatorKind kind_of(const Fields& fields) {
  const std::string text = fields.text("kind");
  for (int i = 0; i <= static_cast<int>(OperatorKind::mean); ++i)
    if (to_text(static_cast<OperatorKind>(i)) == text) return static_cast<OperatorKind>(i);
  throw fields.wrong(fmt::format("kind \"{}\" is not known", printable(text)));
}

std::vector<Index> shape_of(const Fields& fields) {
  std::vector<Index> shape;
  Size values(1);
  for (const nlohmann::json& size : fields.list("shape")) {
    if (!size.is_number_integer() || size.get<Index>() < 1)
      throw fields.wrong("a size in \"shape\" is not a whole number, 1 or more");
    shape.push_back(size.get<Index>());
    values *= shape.back();
  }
  if (shape.size() != 4 && shape.size() != 5)
    throw fields.wrong(
        fmt::format("\"shape\" has {} sizes, expected T,H,W,C or T,N,H,W,C", shape.size()));
  if (!values.fits(most_values))
    throw fields.wrong("\"shape\" has more values than a file of 4 GiB holds");
  return shape;
}

/// The pool and neuron that say which spikes may differ must belong to the shape: membranes are
/// found by them.
void check_stage(const DumpedOperator& op, const Fields& fields) {
  const std::vector<Index> full = op.full_shape();
  const Shapes shapes = shapes_of(op.stage);
  if (op.stage.k != op.stage.c || op.stage.groups != op.stage.c || op.stage.r != 1 ||
      op.stage.s != 1 || op.stage.n != 1 || shapes.p != op.stage.h || shapes.q != op.stage.w ||
      shapes.out_h != full[2] || shapes.out_w != full[3] || op.stage.k != full[4])
    throw fields.wrong("\"stage\" and \"shape\" do not match");
  if (!(Size(full[0]) * full[1] * op.stage.h * op.stage.w * op.stage.c).fits(most_values))
    throw fields.wrong("has more membranes than a file of 4 GiB holds");
}

DumpedOperator operator_of(const nlohmann::json& json, const std::string& name) {
  const Fields fields(json, name);
  DumpedOperator op;
  op.name = fields.text("name");
  op.kind = kind_of(fields);
  op.shape = shape_of(fields);
  try {
    network::check_name(op.name);
    if (fields.has("spikes_of")) {
      op.spikes_of = fields.text("spikes_of");
      network::check_name(op.spikes_of);
      op.threshold = fields.number("threshold");
    }
    if (fields.has("stage") || !op.spikes_of.empty()) op.stage = parse_stage(fields.text("stage"));
  } catch (const Error& error) {
    throw InvalidFile(fmt::format("{}: {}", name, error.what()));
  }
  if (!op.spikes_of.empty()) check_stage(op, fields);
  return op;
}

}  // namespace

std::string index_name(Side side) {
  return side == Side::convoy ? "dbg.json" : "dbg_ref.json";
}
std::string dump_name(const std::string& op, Side side) {
  return "dbg_" + file_name_of(op) + (side == Side::convoy ? ".bin" : "_ref.bin");
}
std::string membrane_name(const std::string& neuron) {
  return "dbg_" + file_name_of(neuron) + "_mem_ref.bin";
}

std::vector<Index> DumpedOperator::full_shape() const {
  std::vector<Index> full = shape;
  if (full.size() == 4) full.insert(full.begin() + 1, 1);
  return full;
}

Index DumpedOperator::values() const {
  Index product = 1;
  for (const Index size : shape) product *= size;
  return product;
}

DumpedOperator dumped(const Operators& operators, const Operator& op, Index n) {
  const Operator& last = operators.all[op.gives];
  DumpedOperator result;
  result.name = op.name;
  result.kind = last.kind;
  result.stage = last.stage;
  result.shape = output_shape(last, operators.steps(), n);
  result.shape[0] = operators.steps();
  if (n == 1) result.shape.erase(result.shape.begin() + 1);
  const std::size_t neuron = operators.neuron_of(op.gives);
  if (neuron == Operators::none) return result;
  result.spikes_of = operators.all[neuron].name;
  result.threshold = static_cast<double>(operators.all[neuron].stage.act.threshold());
  return result;
}

DumpedOperator dumped_mean(const Operators& operators, Index n) {
  DumpedOperator result = dumped(operators, operators.all.back(), n);
  result.name = operators.mean;
  result.kind = OperatorKind::mean;
  result.shape[0] = 1;
  result.stage = {};
  result.spikes_of.clear();
  return result;
}

void make_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  std::error_code none;
  if (std::filesystem::is_directory(folder, none)) return;
  if (std::filesystem::exists(folder, none))
    throw FileError(printable_path(folder) +
                    ": is a file, expected a folder for the dumps. Name another.");
  throw FileError(
      fmt::format("{}: the folder cannot be made: {}. Name a folder that you may write to.",
                  printable_path(folder), failure.message()));
}

void expect_different_files(const std::vector<DumpedOperator>& operators) {
  std::map<std::string, std::string> owners;
  const auto add = [&](const std::string& file, const std::string& op) {
    const auto [at, added] = owners.try_emplace(file, op);
    if (!added && at->second != op)
      throw Error(fmt::format("operators {} and {} would both write {}. Rename one of the layers.",
                              printable(at->second), printable(op), printable(file)));
  };
  std::set<std::string> names;
  for (const DumpedOperator& op : operators) {
    if (!names.insert(op.name).second)
      throw Error(fmt::format(
          "found two operators {}, expected one: they would write the same files. Rename a layer.",
          printable(op.name)));
    for (const Side side : {Side::convoy, Side::reference}) add(dump_name(op.name, side), op.name);
    if (!op.spikes_of.empty()) add(membrane_name(op.spikes_of), "the membranes of " + op.spikes_of);
  }
}

void write_values(const std::string& path, const Tensor& values, Index steps) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "dumps are little endian");
  const std::string_view once(values.data<char>(), values.bytes());
  if (values.view().shape[0] == steps) return write_file_atomically(path, once);
  std::string all;
  all.reserve(once.size() * static_cast<std::size_t>(steps));
  for (Index t = 0; t < steps; ++t) all += once;
  write_file_atomically(path, all);
}

std::vector<float> read_values(const std::string& path, Index count) {
  const InputFile file(path);
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (file.size() != bytes)
    throw InvalidFile(
        fmt::format("{}: {} bytes, expected {} ({} values of float32, by the index). "
                    "Is it the dump of another network, or was it cut short?",
                    printable_path(path), file.size(), bytes, count));
  std::vector<float> values(static_cast<std::size_t>(count));
  file.read(0, {reinterpret_cast<unsigned char*>(values.data()), bytes});
  return values;
}

std::string text_of(const DumpIndex& index) {
  nlohmann::ordered_json operators = nlohmann::ordered_json::array();
  for (const DumpedOperator& op : index.operators) {
    nlohmann::ordered_json json = {
        {"name", op.name}, {"kind", to_text(op.kind)}, {"shape", op.shape}};
    if (!op.spikes_of.empty())
      json.update({{"spikes_of", op.spikes_of}, {"threshold", op.threshold}});
    if (op.stage.c > 0) json["stage"] = to_text(op.stage);
    operators.push_back(std::move(json));
  }
  const nlohmann::ordered_json file = {
      {"format", format_version},
      {"convoy", version()},
      {"model", index.model},
      {"image", index.image},
      {"values", "float32, little endian, in the order of shape: [T,H,W,C] or [T,N,H,W,C]"},
      {"operators", operators}};
  return json_text(file, 1) + "\n";
}

DumpIndex parse_index(std::string_view text, const std::string& name) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  const std::string file = printable_path(name);
  const Fields fields(json, file);
  if (const Index format = fields.integer("format"); format != format_version)
    throw fields.wrong(fmt::format("format {}, expected {}", format, format_version));
  DumpIndex index;
  index.model = fields.text("model");
  index.image = fields.integer("image");
  for (const nlohmann::json& op : fields.list("operators"))
    index.operators.push_back(
        operator_of(op, fmt::format("{}: operator {}", file, index.operators.size() + 1)));
  if (index.operators.empty()) throw fields.wrong("has no operators");
  try {
    expect_different_files(index.operators);
  } catch (const Error& error) {
    throw InvalidFile(fmt::format("{}: {}", file, error.what()));
  }
  return index;
}

void write_dumps(const std::string& folder, Side side, const std::string& model, Index image,
                 const std::vector<DumpedValues>& all) {
  DumpIndex index{model, image, {}};
  for (const DumpedValues& one : all) index.operators.push_back(one.op);
  expect_different_files(index.operators);
  make_folder(folder);
  for (const DumpedValues& one : all) {
    write_values(folder + "/" + dump_name(one.op.name, side), *one.values, one.op.shape[0]);
    if (side == Side::reference && one.membrane)
      write_values(folder + "/" + membrane_name(one.op.spikes_of), *one.membrane, one.op.shape[0]);
  }
  write_file_atomically(folder + "/" + index_name(side), text_of(index));
}

}  // namespace convoy::inspect
