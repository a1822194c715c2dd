// Whether containers of Python still hold the objects that they held: convoy.fuse asks at each call
// of a fused model.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace nb = nanobind;

namespace convoy::python {
namespace {

// A packed watch is a row of words: for each container its address, what it is, how many words
// follow, and those: of a dict keys and values in turn, of a list its items, of another object its
// type, of a part of a mapping a key and its value. The caller keeps all that they point to alive.
using Word = std::uintptr_t;
enum Kind : Word { a_dict, a_list, an_object, a_part };
// In place of a value: no matter which, and any that is not None.
constexpr Word anything = 0;
constexpr Word something = 1;

Word word_of(const PyObject* object) {
  return reinterpret_cast<Word>(object);
}
PyObject* object_of(Word word) {
  return reinterpret_cast<PyObject*>(word);
}

bool as_expected(const PyObject* found, Word expected) {
  if (word_of(found) == expected || expected == anything) return true;
  return expected == something && found != Py_None;
}

bool same_dict(PyObject* dict, const Word* expected, Word size) {
  if (static_cast<Word>(2 * PyDict_Size(dict)) != size) return false;
  if (size == 0) return true;
  Py_ssize_t place = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (; PyDict_Next(dict, &place, &key, &value); expected += 2)
    if (word_of(key) != expected[0] || !as_expected(value, expected[1])) return false;
  return true;
}

bool same_list(PyObject* list, const Word* expected, Word size) {
  if (static_cast<Word>(PyList_Size(list)) != size) return false;
  for (Word at = 0; at < size; ++at)
    if (!as_expected(PyList_GetItem(list, static_cast<Py_ssize_t>(at)), expected[at])) return false;
  return true;
}

/// mapping: a dict, or the read-only view of a class's.
bool same_part(PyObject* mapping, const Word* expected) {
  if (PyDict_Check(mapping)) {
    const PyObject* const found = PyDict_GetItemWithError(mapping, object_of(expected[0]));
    return found && as_expected(found, expected[1]);
  }
  PyObject* const found = PyObject_GetItem(mapping, object_of(expected[0]));
  if (!found) {
    PyErr_Clear();
    return false;
  }
  const bool same = as_expected(found, expected[1]);
  Py_DECREF(found);
  return same;
}

bool same(const Word* record) {
  PyObject* const container = object_of(record[0]);
  switch (record[1]) {
    case a_dict:
      return same_dict(container, record + 3, record[2]);
    case a_list:
      return same_list(container, record + 3, record[2]);
    case a_part:
      return same_part(container, record + 3);
    default:
      return word_of(reinterpret_cast<PyObject*>(Py_TYPE(container))) == record[3];
  }
}

Py_ssize_t first_change(const nb::bytes& packed) {
  const auto* word = static_cast<const Word*>(packed.data());
  const Word* const end = word + packed.size() / sizeof(Word);
  for (Py_ssize_t place = 0; word < end; word += 3 + word[2], ++place)
    if (!same(word)) return place;
  return -1;
}

nb::bytes pack(const nb::tuple& whole, const nb::tuple& parts, nb::handle any, nb::handle some) {
  std::vector<Word> words;
  const auto value_word = [&](nb::handle value) {
    if (value.is(any)) return anything;
    return value.is(some) ? something : word_of(value.ptr());
  };
  const auto begin = [&](nb::handle container, Kind kind, std::size_t size) {
    words.push_back(word_of(container.ptr()));
    words.push_back(kind);
    words.push_back(size);
  };
  for (std::size_t at = 0; at + 1 < whole.size(); at += 2) {
    const nb::handle container = whole[at];
    if (!PyDict_Check(container.ptr()) && !PyList_Check(container.ptr())) {
      begin(container, an_object, 1);
      words.push_back(word_of(nb::handle(whole[at + 1]).ptr()));
      continue;
    }
    const bool dict = PyDict_Check(container.ptr());
    const auto expected = nb::cast<nb::tuple>(whole[at + 1]);
    begin(container, dict ? a_dict : a_list, expected.size());
    for (std::size_t of = 0; of < expected.size(); ++of) words.push_back(value_word(expected[of]));
  }
  for (std::size_t at = 0; at + 2 < parts.size(); at += 3) {
    begin(parts[at], a_part, 2);
    words.push_back(word_of(nb::handle(parts[at + 1]).ptr()));
    words.push_back(value_word(parts[at + 2]));
  }
  return nb::bytes(words.data(), words.size() * sizeof(Word));
}

}  // namespace

void define_watch(nb::module_& module) {
  module.def("_pack_watch", &pack, nb::arg("whole"), nb::arg("parts"), nb::arg("anything"),
             nb::arg("something"),
             "Returns what _first_change compares, as bytes.\n\n"
             "Args:\n"
             "    whole: Containers and their expected content in turn: keys and values of a dict\n"
             "        in their order, items of a list, each compared by identity, or the type of\n"
             "        another object. The tuple must outlive the result.\n"
             "    parts: Mapping, key and value in turn. The tuple must outlive the result.\n"
             "    anything: Stands for any value.\n"
             "    something: Stands for any value except None.\n");
  module.def("_first_change", &first_change, nb::arg("packed"),
             "Returns the index of the first container whose content differs from the expected "
             "one, or -1. The containers of `whole` count first, then those of `parts`.");
}

}  // namespace convoy::python
