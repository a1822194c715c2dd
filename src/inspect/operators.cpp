#include "inspect/operators.hpp"

#include <map>
#include <set>

#include "convoy/tensor.hpp"
#include "core/stage_text.hpp"

namespace convoy::inspect {
namespace {

/// Names of operators that are called after what they do.
class Names {
 public:
  explicit Names(const network::Graph& graph) {
    for (const network::Layer& layer : graph.layers) taken_.insert(layer.name);
  }
  std::string next(const std::string& word) {
    for (;;) {
      std::string name = word + std::to_string(++count_[word]);
      if (!taken_.contains(name)) return name;
    }
  }
  std::string alone(const std::string& word) { return taken_.contains(word) ? next(word) : word; }

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> count_;
};

std::string word_of(const Activation& act) {
  if (act.kind == Activation::Kind::relu6) return "relu";
  return std::string(name_of(act.kind));
}

/// The layer's convolution alone, by an arithmetic that the whole layer may have too.
Operator sums_of(network::Layer& layer, bool reads_timed) {
  Operator op;
  op.name = layer.name;
  op.stage = layer.stage;
  op.stage.act = no_act;
  op.stage.soft = op.stage.hold = false;
  op.stage.t = 1;
  op.stage.pool.reset();
  op.stage.strict = layer.stage.exact();
  const Stage& s = op.stage;
  if (s.h == 1 && s.w == 1 && s.r == 1 && s.s == 1) op.kind = OperatorKind::linear;
  op.w = layer.weights.w;
  op.bias = layer.weights.bias;
  op.reads_timed = op.timed = reads_timed;
  return op;
}

/// What follows on [h,w,c], as a stage that changes no value before it.
Operator follower(std::string name, OperatorKind kind, Index h, Index w, Index c) {
  Operator op;
  op.name = std::move(name);
  op.kind = kind;
  op.stage = {.h = h, .w = w, .c = c, .k = c, .r = 1, .s = 1, .groups = c};
  op.w.assign(static_cast<std::size_t>(c), 1.0F);
  return op;
}

void append(Operators& to, Operator op, std::vector<std::size_t> inputs) {
  op.inputs = std::move(inputs);
  op.gives = to.all.size();
  op.stage = op.stage.normalised();
  to.all.push_back(std::move(op));
}

void add_layer(Operators& to, Names& names, network::Layer& layer, std::size_t number,
               const std::vector<std::size_t>& inputs, bool reads_timed) {
  Stage stage = layer.stage;
  stage.n = 1;
  layer.stage = stage;
  append(to, sums_of(layer, reads_timed), inputs);
  Stage without_pool = stage;
  without_pool.pool.reset();
  const Shapes plane = shapes_of(without_pool);
  const bool neuron = stage.act.is_neuron();
  if (!(stage.act == no_act)) {
    Operator op = follower(names.next(word_of(stage.act)),
                           neuron ? OperatorKind::neuron : OperatorKind::activation, plane.p,
                           plane.q, stage.k);
    op.stage.act = stage.act;
    op.stage.soft = stage.soft;
    op.stage.t = stage.t;
    op.stage.hold = stage.hold;
    op.reads_timed = reads_timed;
    op.timed = layer.timed;
    append(to, std::move(op), {to.all.size() - 1});
  }
  if (stage.pool) {
    Operator op = follower(names.next("pool"), OperatorKind::pool, plane.p, plane.q, stage.k);
    op.stage.pool = stage.pool;
    op.reads_timed = op.timed = layer.timed;
    append(to, std::move(op), {to.all.size() - 1});
  }
  Operator block;
  block.name = "fuse" + std::to_string(number + 1);
  block.kind = to.all.back().kind;
  block.stage = stage.normalised();
  block.w = std::move(layer.weights.w);
  block.bias = std::move(layer.weights.bias);
  block.inputs = inputs;
  block.gives = to.all.size() - 1;
  block.reads_timed = reads_timed;
  block.timed = layer.timed;
  to.blocks.push_back(std::move(block));
}

}  // namespace

std::string_view to_text(OperatorKind kind) {
  constexpr std::string_view texts[] = {"conv", "linear", "activation", "neuron", "pool", "mean"};
  return texts[static_cast<std::size_t>(kind)];
}

Operators operators_of(network::Model model) {
  network::Graph graph = network::graph_of(model.text, std::move(model.weights), 1);
  Operators result;
  result.text = std::move(model.text);
  Names names(graph);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    std::vector<std::size_t> inputs;
    for (const Index input : graph.layers[i].inputs)
      if (input != network::network_input)
        inputs.push_back(result.blocks[static_cast<std::size_t>(input)].gives);
    add_layer(result, names, graph.layers[i], i, inputs, graph.reads_timed(i));
  }
  if (result.all.back().timed && result.steps() > 1) result.mean = names.alone("mean");
  return result;
}

Stage stage_for(const Operator& op, Index steps, Index n) {
  Stage stage = op.stage;
  stage.n = op.reads_timed && !stage.act.is_neuron() ? n * steps : n;
  return stage;
}

std::vector<Index> output_shape(const Operator& op, Index steps, Index n) {
  const Shapes shapes = shapes_of(op.stage);
  return {op.timed ? steps : 1, n, shapes.out_h, shapes.out_w, op.stage.k};
}

}  // namespace convoy::inspect
