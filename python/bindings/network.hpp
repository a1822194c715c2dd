// Networks as Python has them, and their runs on arrays by name.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "convoy/network.hpp"

namespace convoy::python {

struct PythonNetwork {
  PythonNetwork(Network made, Device there) : network(std::move(made)), device(there) {}

  Network network;
  Device device;
};

/// The options that every way of making a network takes. Throws Error.
NetworkOptions options_of(const std::string& device, int threads, Index batch, bool spike_kernels,
                          const std::string& weights, bool openmp);

/// Runs the network on arrays by the names of its inputs and returns a dict of its outputs.
/// `outputs`: None for all of them in new arrays, a dict of arrays to write to, or a sequence of
/// the names that are wanted. Raises as `Network.run` of Python does.
nanobind::dict run_named(const PythonNetwork& self, const nanobind::dict& inputs,
                         nanobind::handle outputs, nanobind::handle stream);

/// convoy.Port
void define_port(nanobind::module_& module);

}  // namespace convoy::python
