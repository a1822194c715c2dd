// Every allocation of every function of the interface fails once, and with all later ones: then
// there is an Error, a status or success, never std::bad_alloc, a signal or a wrong result.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "convoy/dlpack.hpp"
#include "convoy/network.hpp"
#include "convoy/plan.hpp"
#include "convoy/tune.hpp"
#include "core/threads.hpp"
#include "count_allocations.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

long of_this_one = 0, begun = 0;
long which_fails = -1;
bool later_fail = false;

// What stands between these is what memory is short for.
void begin() {
  begun = allocations();
  fail_allocation(which_fails, later_fail);
}
void end() {
  fail_allocation(-1, false);
  of_this_one = allocations() - begun;
}

struct Ended {
  int status;
  long allocations;
};

// In a child, which may end by a signal.
Ended run(const std::function<void()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, 0};
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int code = 0;
    try {
      work();
    } catch (const Error&) {
      fail_allocation(-1, false);
      code = 1;
    } catch (const std::bad_alloc&) {
      fail_allocation(-1, false);
      code = 2;
    } catch (...) {
      fail_allocation(-1, false);
      code = 3;
    }
    static_cast<void>(!write(ends[1], &of_this_one, sizeof of_this_one));
    _exit(code);
  }
  long count = 0;
  close(ends[1]);
  static_cast<void>(!read(ends[0], &count, sizeof count));
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {status, count};
}

void expect_errors(const char* name, const std::function<void()>& work) {
  which_fails = -1;
  const Ended whole = run(work);
  ASSERT_EQ(whole.status, 0) << name << " fails with all the memory that it wants";
  ASSERT_GT(whole.allocations, 0) << name;
  const long step = std::max(1L, whole.allocations / 120);
  for (const bool later : {false, true}) {
    for (long i = 0; i < whole.allocations; i += i < 40 ? 1 : step) {
      which_fails = i;
      later_fail = later;
      const Ended ended = run(work);
      const bool good = WIFEXITED(ended.status) && WEXITSTATUS(ended.status) <= 1;
      EXPECT_TRUE(good) << name << ": allocation " << i << " of " << whole.allocations
                        << (later ? " and all later ones" : "") << ": "
                        << (WIFSIGNALED(ended.status)
                                ? "signal " + std::to_string(WTERMSIG(ended.status))
                            : WEXITSTATUS(ended.status) == 2 ? "std::bad_alloc"
                            : WEXITSTATUS(ended.status) == 9 ? "wrong results"
                                                             : "another exception");
    }
  }
}

struct Things {
  Stage stage = parse_stage("n2h12c32k32r3pad1+bias+relu+max2");
  Tensor w{DType::f32, w_shape(stage)}, x{DType::f32, x_shape(stage)},
      y{DType::f32, y_shape(stage)}, bias{DType::f32, {stage.k}};
  PlanOptions options;
  explicit Things(int threads) {
    options.threads = threads;
    options.all_threads = true;
    for (Index i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i % 11) - 5;
    for (Index i = 0; i < w.elements(); ++i) w.data<float>()[i] = static_cast<float>(i % 7) - 3;
  }
};

class FailedAllocations : public testing::Test {
 protected:
  void SetUp() override {
    if (!counts_allocations) GTEST_SKIP() << "a sanitizer has malloc for itself";
  }
};

TEST_F(FailedAllocations, OfAPlanAreErrors) {
  for (const int threads : {1, 2}) {
    expect_errors("Plan", [threads] {
      const Things things(threads);
      begin();
      const Plan plan(things.stage, things.w, things.options);
      end();
    });
    expect_errors("pack, use, set_weights", [threads] {
      const Things things(threads);
      Plan plan(things.stage, things.w, things.options);
      begin();
      const Weights packed = plan.pack(things.w);
      plan.use(packed);
      plan.set_weights(things.w);
      end();
    });
    expect_errors("run", [threads] {
      Things things(threads);
      Operands operands;
      operands.x = things.x, operands.y = things.y, operands.bias = things.bias;
      std::vector<float> expected;
      begin();
      {
        const Plan plan(things.stage, things.w, things.options);
        if (plan.run(operands).ok()) {
          fail_allocation(-1, false);
          expected.assign(things.y.data<float>(), things.y.data<float>() + things.y.elements());
          Things again(1);
          again.options.kernel = plan.kernel();
          operands.y = again.y;
          Plan(again.stage, again.w, again.options).run(operands).or_throw();
          if (std::memcmp(expected.data(), again.y.data<float>(), again.y.bytes()) != 0) _exit(9);
        }
        operands.bias = {};
        if (plan.run(operands).ok()) _exit(9);
      }
      end();
    });
    expect_errors("explain", [threads] {
      const Things things(threads);
      const Plan plan(things.stage, things.w, things.options);
      begin();
      static_cast<void>(plan.explain());
      static_cast<void>(plan.kernel());
      static_cast<void>(plan.tile());
      static_cast<void>(plan.packing());
      static_cast<void>(plan.arithmetic());
      end();
    });
  }
}

TEST_F(FailedAllocations, OfANetworkAreErrors) {
  const std::string folder = source_path("models/fashion-scnn");
  expect_errors("Network", [&] {
    begin();
    const Network network(folder, {.threads = 2});
    end();
  });
  expect_errors("run, warm, profile and trace", [&] {
    const Network network(folder, {.threads = 2});
    Tensor images(DType::u8, {3, 28, 28, 1}), logits(DType::f32, {3, 10}),
        values(DType::f32, {3, 28, 28, 1});
    for (Index i = 0; i < values.elements(); ++i)
      values.data<float>()[i] = 0.123F * static_cast<float>(i);
    begin();
    static_cast<void>(network.run(images, logits, {}).ok());
    const Status odd = network.run(values, logits, {});
    if (!odd.ok() && odd.code() == StatusCode::device_error) _exit(9);
    static_cast<void>(network.run(images, images, {}).ok());
    network.warm(3);
    std::vector<double> seconds;
    std::vector<LayerSpan> spans;
    static_cast<void>(network.profile(images, seconds, &spans).ok());
    static_cast<void>(network.trace(images));
    end();
  });
}

TEST_F(FailedAllocations, OfTextsAndTensorsAreErrors) {
  expect_errors("texts", [] {
    begin();
    static_cast<void>(parse_stage("n2h12c32k32r3pad1+bias+relu+max2"));
    static_cast<void>(
        parse_network("input f32:h9c3\na k8r3pad1+bias+relu batchnorm(bn)\nb k4r1 "
                      "from(a)\nc k4r3pad1 from(a)\nd k5r3+max2 "
                      "from(b,c)\nflatten\nfc k10+bias\n",
                      "t"));
    end();
  });
  expect_errors("tensors", [] {
    const std::vector<Index> shape{2, 3};
    begin();
    Tensor one(DType::f32, shape);
    static_cast<void>(one.clone());
    static_cast<void>(to_dlpack(Tensor(DType::f32, shape)));
    static_cast<void>(to_dlpack_versioned(Tensor(DType::f32, shape)));
    static_cast<void>(to_dlpack(one.view()));
    end();
  });
}

}  // namespace
}  // namespace convoy
