// The extension module convoy._core: all of it is re-exported by python/convoy/__init__.py.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "convoy/plan.hpp"
#include "errors.hpp"
#include "stage.hpp"
#include "stage_values.hpp"
#include "torch_tensor.hpp"

namespace convoy::python {

void define_contents(nanobind::module_& module);
void define_graph(nanobind::module_& module);
void define_plan(nanobind::module_& module);
void define_repack_group(nanobind::module_& module);
void define_network(nanobind::module_& module);
void define_network_text(nanobind::module_& module);
void define_tune(nanobind::module_& module);
void define_watch(nanobind::module_& module);

}  // namespace convoy::python

NB_MODULE(_core, module) {
  // Objects that an interpreter keeps to its end are no leaks of ours.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = convoy::version();
  convoy::python::define_errors(module);
  convoy::python::define_stage_values(module);
  convoy::python::define_stage(module);
  convoy::python::define_tensor(module);
  convoy::python::define_plan(module);
  convoy::python::define_repack_group(module);
  convoy::python::define_contents(module);
  convoy::python::define_network_text(module);
  convoy::python::define_network(module);
  convoy::python::define_graph(module);
  convoy::python::define_tune(module);
  convoy::python::define_watch(module);
  convoy::python::define_torch(module);
}
