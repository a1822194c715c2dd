#include "io/dataset.hpp"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::io {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string find_data(const std::string& file, const std::string& folder) {
  const std::string variable = environment("CONVOY_DATA"), home = environment("HOME");
  std::string user = environment("XDG_DATA_HOME");
  if (user.empty() && !home.empty()) user = home + "/.local/share";
  if (!user.empty()) user += "/convoy";
  const std::string debian = "/usr/share/datasets/fashion-mnist";
  const std::vector<std::string> folders =
      folder.empty() ? std::vector<std::string>{variable, user, debian} : std::vector{folder};
  for (const std::string& place : folders) {
    if (place.empty()) continue;
    for (const char* suffix : {"", ".gz"}) {
      std::string path = place + "/" + file + suffix;
      // In a folder that was named, anything of that name: reading says why it is not the file.
      std::error_code none;
      if (folder.empty() ? std::filesystem::is_regular_file(path, none) : file_there(path))
        return path;
    }
  }
  if (!folder.empty())
    throw FileNotFound(file + "[.gz] not found in " + printable_path(folder) +
                       ". Is it the folder of the test set?");
  throw FileNotFound(file + "[.gz] not found in: CONVOY_DATA " +
                     (variable.empty() ? "(not set)" : printable_path(variable)) + ", " +
                     (user.empty() ? "the XDG data folder (no HOME)" : printable_path(user)) +
                     ", " + debian +
                     ". Install Debian's dataset-fashion-mnist or name a folder with --data.");
}

}  // namespace convoy::io
