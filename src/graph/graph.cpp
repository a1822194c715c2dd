#include "graph/graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/failure.hpp"
#include "core/printable.hpp"

namespace convoy::graph {

Index Value::elements() const {
  Index product = 1;
  for (const Index size : axes) product *= size;
  return product;
}

ValueId Graph::add(Value value) {
  values.push_back(std::move(value));
  return values.size() - 1;
}

ValueId Graph::add(Node node, std::string value_name) {
  Value value = infer(*this, node);
  value.name = std::move(value_name);
  node.out = add(std::move(value));
  nodes.push_back(std::move(node));
  return nodes.back().out;
}

ValueId Graph::add_constant(std::string name, std::vector<Index> axes, std::vector<float> numbers) {
  Value value;
  value.name = std::move(name);
  value.axes = std::move(axes);
  value.constant = std::make_shared<const std::vector<float>>(std::move(numbers));
  return add(std::move(value));
}

std::string Graph::free_name(std::string name) const {
  const auto taken = [&] {
    return std::any_of(values.begin(), values.end(),
                       [&](const Value& value) { return value.name == name; });
  };
  while (taken()) name += '\'';
  return name;
}

bool Graph::is_output(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
}

namespace {

/// What verify() complains of is a mistake of a pass, not of a user.
Error broken(const std::string& what) {
  return InternalError(fmt::format("a pass left the graph broken: {}. Please report it.", what));
}

void verify_value(const Value& value) {
  if (!value.constant) return;
  if (value.elements() != static_cast<Index>(value.constant->size()))
    throw broken(fmt::format("constant {} has {} numbers, its axes {}", printable(value.name),
                             value.constant->size(), value.elements()));
}

}  // namespace

void Graph::verify() const {
  enum class State { missing, there };
  std::vector<State> state(values.size(), State::missing);
  const auto give = [&](ValueId id, const std::string& who) {
    if (id >= values.size()) throw broken(who + " gives a value that is not there");
    if (state[id] == State::there)
      throw broken(
          fmt::format("{} gives {}, which is there already", who, printable(values[id].name)));
    state[id] = State::there;
  };
  std::set<std::string> names;
  for (ValueId id = 0; id < values.size(); ++id) {
    verify_value(values[id]);
    if (!names.insert(values[id].name).second)
      throw broken(fmt::format("two values are called {}", printable(values[id].name)));
    if (values[id].constant) give(id, "a constant");
  }
  for (const ValueId id : inputs) give(id, "the input");
  names.clear();
  for (const Node& node : nodes) {
    const std::string who = printable(node.name);
    if (!names.insert(node.name).second) throw broken("two nodes are called " + who);
    for (const ValueId id : node.in)
      if (id >= values.size() || state[id] == State::missing)
        throw broken(who + " reads a value before it is computed");
    give(node.out, who);
    const Value expected = infer(*this, node), &found = values[node.out];
    if (found.constant || expected.type != found.type || expected.axes != found.axes ||
        expected.timed != found.timed)
      throw broken(fmt::format("{} gives {} {}, its value is {} {}", who, to_text(expected.type),
                               shape_text(expected), to_text(found.type), shape_text(found)));
  }
  if (outputs.empty()) throw broken("it has no output");
  for (const ValueId id : outputs)
    if (id >= values.size() || state[id] == State::missing || values[id].constant)
      throw broken("an output is not computed");
}

Links::Links(const Graph& graph)
    : producer(graph.values.size(), no_id), users(graph.values.size()) {
  for (NodeId i = 0; i < graph.nodes.size(); ++i) {
    producer[graph.nodes[i].out] = i;
    for (const ValueId id : graph.nodes[i].in) users[id].push_back(i);
  }
}

NodeId Links::only_user(const Graph& graph, ValueId id) const {
  return users[id].size() == 1 && !graph.is_output(id) ? users[id].front() : no_id;
}

Graph without_dead(Graph graph) {
  std::vector<bool> needed(graph.values.size());
  for (const ValueId id : graph.inputs) needed[id] = true;
  for (const ValueId id : graph.outputs) needed[id] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;)
    if (needed[graph.nodes[i].out])
      for (const ValueId id : graph.nodes[i].in) needed[id] = true;
  std::erase_if(graph.nodes, [&](const Node& node) { return !needed[node.out]; });
  std::vector<ValueId> now(graph.values.size(), no_id);
  std::vector<Value> kept;
  for (ValueId id = 0; id < graph.values.size(); ++id)
    if (needed[id]) {
      now[id] = kept.size();
      kept.push_back(std::move(graph.values[id]));
    }
  graph.values = std::move(kept);
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = now[id];
  };
  renumber(graph.inputs);
  renumber(graph.outputs);
  for (Node& node : graph.nodes) {
    renumber(node.in);
    node.out = now[node.out];
  }
  return graph;
}

}  // namespace convoy::graph
