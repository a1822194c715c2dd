// Files: nothing but a regular file is read, nothing waits, and what is written leaves links, modes
// and other people's files alone.
#include "core/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "convoy/error.hpp"

namespace convoy {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = testing::TempDir() + "convoy-file-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string get(const std::string& name) const {
    const auto bytes = read_file(path(name));
    return std::string(text_of(bytes));
  }
  mode_t mode(const std::string& name) const {
    struct stat found {};
    return stat(path(name).c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string folder_;
};

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}
std::string not_read(const std::string& path, std::size_t limit = 1 << 20) {
  return refusal([&] { read_file(path, limit); });
}
bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST_F(FileTest, ReadsRegularFilesAlone) {
  put("file", "text");
  EXPECT_EQ(get("file"), "text");
  EXPECT_TRUE(says(not_read(folder_), "is a folder"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(not_read(path("pipe")), "pipe: is a pipe"));
  EXPECT_TRUE(says(not_read("/dev/zero"), "/dev/zero: is a device"));
  fs::create_symlink("nowhere", path("dangling"));
  EXPECT_TRUE(says(not_read(path("dangling")), "link whose target does not exist"));
  fs::create_symlink("loop", path("loop"));
  EXPECT_TRUE(says(not_read(path("loop")), "leads back to itself"));
  EXPECT_TRUE(says(not_read(path("absent")), "Check the path"));
  EXPECT_TRUE(says(not_read(path("file") + "\x1b[31m"), "file?[31m: cannot be opened"));
}

TEST_F(FileTest, LooksAtTheSizeBeforeItReads) {
  put("sparse", "");
  ASSERT_EQ(truncate(path("sparse").c_str(), off_t{20} << 30), 0);
  EXPECT_TRUE(says(not_read(path("sparse")), "21474836480 bytes, expected at most 1048576"));
}

TEST_F(FileTest, SeesWhateverHasTheName) {
  EXPECT_FALSE(file_there(path("absent")));
  EXPECT_FALSE(file_there(path("absent/deeper")));
  EXPECT_TRUE(file_there(folder_));
  fs::create_symlink("nowhere", path("dangling"));
  EXPECT_TRUE(file_there(path("dangling")));
}

TEST_F(FileTest, KeepsTheModeOfWhatItReplaces) {
  for (const mode_t kept : {0600, 0640, 0444, 0664}) {
    put("file", "old");
    ASSERT_EQ(chmod(path("file").c_str(), kept), 0);
    write_file_atomically(path("file"), "new");
    EXPECT_EQ(mode("file"), kept);
    EXPECT_EQ(get("file"), "new");
    fs::remove(path("file"));
  }
  write_file_atomically(path("file"), "new");
  EXPECT_EQ(mode("file") & 0133, 0U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, WritesWhatALinkPointsTo) {
  fs::create_directory(path("deeper"));
  fs::create_symlink("deeper/file", path("link"));  // to what is not there yet
  fs::create_symlink("../link", path("deeper/again"));
  for (const char* text : {"first", "second"}) {
    write_file_atomically(path("deeper/again"), text);
    EXPECT_TRUE(fs::is_symlink(path("link")));
    EXPECT_TRUE(fs::is_symlink(path("deeper/again")));
    EXPECT_EQ(get("deeper/file"), text);
  }
  fs::create_symlink("absent/file", path("astray"));
  EXPECT_TRUE(says(refusal([&] { write_file_atomically(path("astray"), ""); }), "No such"));
  fs::create_symlink("loop", path("loop"));
  EXPECT_TRUE(says(refusal([&] { expect_writable(path("loop")); }), "Too many"));
  EXPECT_EQ(files(), 4U);
}

TEST_F(FileTest, RefusesToReplaceWhatIsNoFile) {
  EXPECT_TRUE(says(refusal([&] { expect_writable(folder_); }), "is a folder"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(refusal([&] { write_file_atomically(path("pipe"), "x"); }), "is a pipe"));
  EXPECT_TRUE(says(refusal([&] { expect_writable("/dev/null"); }), "is a device"));
  // An open file whose name is gone: writing would make a file called "gone (deleted)".
  put("gone", "");
  const Descriptor open_file(open(path("gone").c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(path("gone"));
  const std::string magic = "/proc/self/fd/" + std::to_string(open_file.get());
  EXPECT_TRUE(says(refusal([&] { expect_writable(magic); }), "without a name"));
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileTest, WritesUnderTheLongestName) {
  const std::string name(NAME_MAX, 'x');
  write_file_atomically(path(name), "text");
  EXPECT_EQ(get(name), "text");
}

TEST_F(FileTest, TellsPathsThatNameOneFile) {
  fs::create_directory(path("a"));
  fs::create_directory_symlink("a", path("b"));
  fs::create_symlink("a/x", path("link"));
  EXPECT_TRUE(same_target(path("a/x"), path("a/./x")));
  EXPECT_TRUE(same_target(path("a/x"), path("b/x")));
  EXPECT_TRUE(same_target(path("a/x"), path("link")));
  EXPECT_FALSE(same_target(path("a/x"), path("x")));
  EXPECT_FALSE(same_target(path("a/x"), path("a/y")));
}

TEST_F(FileTest, ASignalLeavesNoTemporaryFile) {
  // The child is ended while its temporary file is there. Where it is faster than that, the test
  // has seen nothing.
  for (int attempt = 0; attempt < 5; ++attempt) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      signal(SIGTERM, [](int) {
        remove_temporary_file();
        _exit(7);
      });
      const std::string text(std::size_t{64} << 20, 'x');
      while (true) write_file_atomically(path("file"), text);
    }
    const auto temporary_there = [&] {
      for (const auto& entry : fs::directory_iterator(folder_))
        if (entry.path().extension() == ".tmp") return true;
      return false;
    };
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!temporary_there() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, SIGTERM);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_FALSE(temporary_there());
  }
}

}  // namespace
}  // namespace convoy
