// Where --json FILE, --csv FILE and --out FILE write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convoy::cli {

class ResultFile {
 public:
  ResultFile() = default;
  /// `path` as the option got it; empty: not asked for. "-" is standard output, and so is a path
  /// that leads there (/dev/stdout, or the file that it is redirected to), which must not be
  /// replaced. Throws Error where the file could not be written, before long work.
  ResultFile(std::string_view option, std::string path);

  bool asked_for() const { return !path_.empty(); }
  bool on_standard_output() const { return on_standard_output_; }
  /// "-": nothing else is printed.
  bool alone() const { return path_ == "-"; }
  /// Writes the file whole or not at all, or prints the text.
  void write(std::string_view text) const;

  /// Throws Error where it is a file that the command reads, which it would replace. Those without
  /// a name are passed over.
  void expect_no_input(const std::vector<std::string>& inputs) const;
  /// Throws Error where both write to the same place.
  static void expect_different(const ResultFile& a, const ResultFile& b);

 private:
  std::string option_, path_;
  bool on_standard_output_ = false;
};

}  // namespace convoy::cli
