#include "result_file.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convoy/error.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::cli {
namespace {

bool leads_to(const std::string& path, int descriptor) {
  struct stat named {
  }, open{};
  return stat(path.c_str(), &named) == 0 && fstat(descriptor, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

}  // namespace

ResultFile::ResultFile(std::string_view option, std::string path)
    : option_(option), path_(std::move(path)) {
  if (!asked_for()) return;
  on_standard_output_ = alone() || leads_to(path_, STDOUT_FILENO);
  if (on_standard_output_) return;
  if (leads_to(path_, STDERR_FILENO))
    throw Error(
        fmt::format("{}: {} is standard error, to which messages are written. Name another file, "
                    "or - for standard output.",
                    option_, printable_path(path_)));
  expect_writable(path_);
}

void ResultFile::write(std::string_view text) const {
  if (on_standard_output_)
    fmt::print("{}", text);
  else
    write_file_atomically(path_, text);
}

void ResultFile::expect_no_input(const std::vector<std::string>& inputs) const {
  if (!asked_for() || on_standard_output_) return;
  for (const std::string& input : inputs)
    if (!input.empty() && same_target(path_, input))
      throw Error(fmt::format(
          "{} {} is a file that this command reads; it would be replaced. Name another file.",
          option_, printable_path(path_)));
}

void ResultFile::expect_different(const ResultFile& a, const ResultFile& b) {
  if (!a.asked_for() || !b.asked_for()) return;
  if (a.on_standard_output_ && b.on_standard_output_)
    throw Error(fmt::format("{} {} and {} {} are both for standard output. Name a file for one.",
                            a.option_, printable_path(a.path_), b.option_,
                            printable_path(b.path_)));
  if (!a.on_standard_output_ && !b.on_standard_output_ && same_target(a.path_, b.path_))
    throw Error(fmt::format("{} {} and {} {} are the same file. Name another for one.", a.option_,
                            printable_path(a.path_), b.option_, printable_path(b.path_)));
}

}  // namespace convoy::cli
