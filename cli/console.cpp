#include "console.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <new>

#include "core/file.hpp"

namespace convoy::cli {
namespace {

// The handler is gone by now (SA_RESETHAND): raised again, the signal ends the program as ever.
void end_by(int signal) {
  remove_temporary_file();
  raise(signal);
}

void open_missing_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0 || errno != EBADF) continue;
    // For reading alone: what is printed on a closed standard output is lost, and that is an error.
    const int mode = standard == STDERR_FILENO ? O_RDWR : O_RDONLY;
    if (open("/dev/null", mode) != standard) std::_Exit(2);
  }
}

std::atomic<void*> reserve{nullptr};

// The first failed allocation is thrown, as ever, and the way out has the reserve's memory: trees
// of JSON allocate in their destructors, which must not throw. Once that is used up the program
// ends.
void give_up_reserve() {
  if (void* const memory = reserve.exchange(nullptr)) {
    std::free(memory);
    throw std::bad_alloc();
  }
  remove_temporary_file();
  write_error(no_memory);
  std::_Exit(2);
}

std::terminate_handler usual_end = nullptr;

bool is_memory_short() {
  constexpr std::size_t of_an_exception = std::size_t{64} << 10;
  void* const memory = std::malloc(of_an_exception);
  std::free(memory);
  if (memory == nullptr) return true;
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) return false;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

// No handler of `main` catches what is thrown before it, and the runtime ends a program that has no
// memory for an exception.
void end_without_memory() {
  if (is_memory_short()) {
    remove_temporary_file();
    write_error(no_memory);
    std::_Exit(2);
  }
  usual_end();
  std::abort();  // a handler does not return
}

// Before other objects of the program are made: those may already find no memory.
__attribute__((constructor(101))) void watch_the_end() {
  usual_end = std::set_terminate(end_without_memory);
}

void keep_reserve() {
  constexpr std::size_t bytes = std::size_t{4} << 20;
  void* const memory = std::malloc(bytes);
  if (memory != nullptr)
    std::memset(memory, 1, bytes);  // what is only promised may not be there when it is needed
  reserve = memory;
  std::set_new_handler(give_up_reserve);
}

}  // namespace

void prepare_process() {
  open_missing_descriptors();
  keep_reserve();
  signal(SIGXFSZ, SIG_IGN);
  for (const int ending : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(ending, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = end_by;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(ending, &action, nullptr);
  }
}

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void write_error(std::string_view text) noexcept {
  // Where nobody reads any more, the program must not end by SIGPIPE before its exit code is set.
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) {
      const timespec now{};
      sigtimedwait(&pipe, nullptr, &now);
    }
    if (written <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace convoy::cli
