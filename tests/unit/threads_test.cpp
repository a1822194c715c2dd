// Loops, plans and networks on threads of a caller's own.
#include "core/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "convoy/network.hpp"
#include "convoy/plan.hpp"

namespace convoy {
namespace {

std::atomic<int> regions{0}, most_asked{0};

void note(int count) {
  ++regions;
  int seen = most_asked.load();
  while (seen < count && !most_asked.compare_exchange_weak(seen, count)) {
  }
}

// As many as asked for, the last one first.
void all_come(int count, void (*body)(void*, int), void* context) {
  note(count);
  std::vector<std::thread> others;
  for (int i = count - 1; i > 0; --i) others.emplace_back(body, context, i);
  body(context, 0);
  for (std::thread& other : others) other.join();
}

void one_comes(int count, void (*body)(void*, int), void* context) {
  note(count);
  body(context, 0);
}

void one_comes_late(int count, void (*body)(void*, int), void* context) {
  note(count);
  body(context, 0);
  if (count > 1) std::thread(body, context, count - 1).join();
}

constexpr CallerThreads kinds[] = {all_come, one_comes, one_comes_late};

TEST(CallerThreads, DoEachTaskOnceAndShareNoSlot) {
  for (const CallerThreads kind : kinds) {
    for (const int count : {1, 2, 3, 40}) {
      Threads threads(count, kind);
      EXPECT_EQ(threads.count(), count);
      for (const Index tasks : {0, 1, 2, 3, 39, 1000}) {
        std::vector<std::atomic<int>> done(static_cast<std::size_t>(tasks));
        std::vector<std::atomic<int>> inside(static_cast<std::size_t>(count));
        std::atomic<int> shared{0};
        threads.for_each(tasks, [&](Index task, int slot) {
          if (inside[static_cast<std::size_t>(slot)]++ != 0) ++shared;
          ++done[static_cast<std::size_t>(task)];
          --inside[static_cast<std::size_t>(slot)];
        });
        for (std::size_t task = 0; task < done.size(); ++task)
          ASSERT_EQ(done[task].load(), 1) << "task " << task << " of " << tasks << ", " << count;
        EXPECT_EQ(shared.load(), 0);
      }
    }
  }
}

// Kernels with and without workspace, of one loop and of several.
TEST(CallerThreads, GiveTheBitsOfConvoysOwn) {
  for (const char* text : {"n4h16c8k16r3pad1+bias+relu+max2", "n3h20c3k32r3pad1+bias+relu+max2",
                           "n2h9c64k128r3pad1+bias+relu", "n5h7c16k24r1+bias", "n2h14c32k32r5pad2",
                           "n2h8c4k8r3pad1+bias+if(1)+t3+max2"}) {
    const Stage stage = parse_stage(text);
    Tensor x(DType::f32, x_shape(stage)), w(DType::f32, w_shape(stage)),
        bias(DType::f32, {stage.k});
    for (Index i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = 0.1F * static_cast<float>(i % 11) - 0.4F;
    for (Index i = 0; i < w.elements(); ++i)
      w.data<float>()[i] = 0.3F * static_cast<float>(i % 7) - 1;
    const auto run = [&](int threads, CallerThreads caller) {
      PlanOptions options;
      options.threads = threads;
      options.all_threads = true;
      options.use_tuning = false;
      options.caller_threads = caller;
      const Plan plan(stage, w, options);
      EXPECT_EQ(plan.threads(), threads);
      Tensor y(DType::f32, y_shape(plan.stage()));
      Operands operands;
      operands.x = x;
      if (stage.bias) operands.bias = bias;
      operands.y = y;
      plan.run(operands).or_throw();
      return y;
    };
    const Tensor expected = run(2, nullptr);
    for (const CallerThreads kind : kinds) {
      for (const int threads : {2, 3}) {
        regions = most_asked = 0;
        const Tensor y = run(threads, kind);
        EXPECT_EQ(std::memcmp(y.view().data, expected.view().data, y.bytes()), 0) << text;
        EXPECT_GT(regions.load(), 0) << text;
        EXPECT_LE(most_asked.load(), threads) << text;
      }
    }
  }
}

TEST(CallerThreads, RunANetwork) {
  const NetworkText text = parse_network(
      "input f32:h16w16c3\nconv1 k8r3pad1+bias+relu+max2\nflatten\nfc1 k5+bias\n", "mine");
  std::vector<float> conv(8 * 3 * 9), fc(5 * 8 * 64), bias(8, 0.25F), images(6 * 16 * 16 * 3);
  float next = 0;
  for (std::vector<float>* values : {&conv, &fc, &images})
    for (float& value : *values) value = (next = next > 3 ? next - 3.7F : next + 0.3F);
  const NetworkParameters parameters{{"conv1.weight", TensorView::of(conv.data(), {8, 3, 3, 3})},
                                     {"conv1.bias", TensorView::of(bias.data(), {8})},
                                     {"fc1.weight", TensorView::of(fc.data(), {5, 512})},
                                     {"fc1.bias", TensorView::of(bias.data(), {5})}};
  const auto logits_of = [&](CallerThreads caller) {
    const Network network(text, parameters, {.threads = 2, .caller_threads = caller});
    std::vector<float> logits(30);
    network
        .run(TensorView::of(images.data(), {6, 16, 16, 3}), TensorView::of(logits.data(), {6, 5}),
             {})
        .or_throw();
    return logits;
  };
  const std::vector<float> expected = logits_of(nullptr);
  for (const CallerThreads kind : kinds) {
    regions = 0;
    EXPECT_EQ(logits_of(kind), expected);
    EXPECT_GT(regions.load(), 0);
  }
}

}  // namespace
}  // namespace convoy
