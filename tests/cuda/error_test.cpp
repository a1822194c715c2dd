// Bad input on and around a GPU: each has its message, and the process goes on.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/device.hpp"
#include "empty.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_in(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(WhyNoDevice, SaysWhatToDo) {
  using cuda::why_no_device;
  expect_in(why_no_device(cudaErrorInsufficientDriver, 0, ""), {"no NVIDIA driver", "Install"});
  expect_in(why_no_device(cudaErrorInsufficientDriver, 0, "11.4"),
            {"serves CUDA 11.4", "this build needs", "Install a newer driver"});
  expect_in(why_no_device(cudaErrorNoDevice, 0, "13.0"), {"sees no GPU", "CUDA_VISIBLE_DEVICES"});
  expect_in(why_no_device(cudaErrorInitializationError, 0, "13.0"),
            {"cudaErrorInitializationError", "nvidia-smi"});
  EXPECT_EQ(why_no_device(cudaSuccess, 1, "13.0"), "");
}

TEST(CompiledFor, SaysWhatTheBuildHasCodeFor) {
  EXPECT_EQ(cuda::architectures_text("75-real 80-real 90-virtual 90a-real 120-real"),
            "machine code for compute capability 7.5, 8.0, 9.0a, 12.0; PTX for 9.0 and later");
  EXPECT_EQ(cuda::architectures_text("90a-real"), "machine code for compute capability 9.0a");
  // What CMake compiled: the folders any/ and sm90/ at least.
  expect_in(gpu::survey().compiled, {"7.5", "9.0a", "PTX for 9.0 and later; CUDA "});
}

// Without a driver, too: the library loads, the CPU works, and a GPU is refused with the reason.
TEST(WithoutGpu, IsRefusedWithTheReason) {
  const gpu::Survey survey = gpu::survey();
  if (!survey.machines.empty()) GTEST_SKIP() << "skipped: there is a GPU";
  EXPECT_FALSE(survey.why_none.empty());
  const Stage stage = parse_stage("n1h4c3k4r3");
  const std::string plan = message_of([&] { const Plan made(stage, options_for(gpu0)); });
  expect_in(plan, {"device cuda:0", survey.why_none.c_str(), "use cpu"});
  const std::string tensor = message_of([&] { const Tensor made(DType::f32, {4}, gpu0); });
  expect_in(tensor, {"device cuda:0", survey.why_none.c_str()});
  const Plan works(stage, options_for({}));
  EXPECT_EQ(works.device().kind, DeviceKind::cpu);
}

class GpuErrors : public GpuTest {
 protected:
  // After whatever went wrong: a plan on the GPU still gives the CPU's answer.
  static void expect_usable() {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "left behind for the next call";
    const Stage stage = parse_stage("f16:n2h8c16k16r3pad1+bias+relu+max2");
    GpuCase host(stage, Values::integers, {}), device(stage, Values::integers, gpu0);
    Plan(stage, host.w, options_for({})).run(host.operands()).or_throw();
    Plan(stage, host.w, options_for(gpu0)).run(device.operands()).or_throw();
    EXPECT_EQ(device.outputs(), host.outputs());
  }
};

// The caller's next check, which may be PyTorch's, is not to be blamed. (Without a GPU every check
// tells that there is none.)
TEST_F(GpuErrors, ALaunchThatFails) {
  EXPECT_NE(launch_impossible(), cudaSuccess);
  expect_usable();
}

TEST_F(GpuErrors, NoSuchDevice) {
  const Stage stage = parse_stage("n1h4c3k4r3");
  const std::string message = message_of([&] {
    const Plan plan(stage, options_for({DeviceKind::cuda, 99}));
  });
  expect_in(message, {"cuda:99", "numbered from 0"});
  expect_usable();
}

TEST_F(GpuErrors, OutOfMemory) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  // A plan whose weights alone are larger than any GPU's memory.
  const Stage stage = parse_stage("n1h1c1000000k1000000r1");
  const auto kept = memory_kept_by([&] {
    const std::string tensor =
        message_of([&] { const Tensor made(DType::u8, {static_cast<Index>(total) * 2}, gpu0); });
    expect_in(tensor, {"no memory on cuda:0", "free", "Use a smaller n"});
    const std::string plan = message_of([&] { const Plan made(stage, options_for(gpu0)); });
    expect_in(plan, {"no memory on cuda for the weights of", to_text(stage).c_str()});
  });
  EXPECT_EQ(kept, 0);
  expect_usable();
}

TEST_F(GpuErrors, MisalignedOperandsAreRefusedOrServed) {
  const Stage stage = parse_stage("f16:n2h8c16k16r3pad1+bias+relu");
  GpuCase one(stage, Values::integers, gpu0);
  Tensor spare(DType::f16, {2 * 8 * 8 * 16 + 64}, gpu0);
  const auto moved = [&](const TensorView& view, std::size_t bytes) {
    TensorView there = view;
    there.data = spare.data<char>() + bytes;
    return there;
  };
  const Plan halo(stage, one.w, options_for(gpu0, "halo")),
      general(stage, one.w, options_for(gpu0, "general"));
  general.run(one.operands()).or_throw();
  const std::vector<unsigned char> expected = one.outputs();

  Operands operands = one.operands();
  const TensorView x = moved(one.x, 2);
  copy_tensor(one.x, x);
  operands.x = x;
  expect_in(halo.run(operands).message(), {"x: its address", "16", "halo", "kernel general"});
  general.run(operands).or_throw();
  EXPECT_EQ(one.outputs(), expected);

  operands = one.operands();
  operands.y = moved(one.y, 4);
  expect_in(halo.run(operands).message(), {"y: its address", "16"});
  general.run(operands).or_throw();
  copy_tensor(operands.y, one.y);
  EXPECT_EQ(one.outputs(), expected);

  operands.y = moved(one.y, 1);
  expect_in(general.run(operands).message(), {"y: its address", "a multiple of 2"});

  Tensor wide(DType::f16, {2, 8, 8, 19}, gpu0);
  operands = one.operands();
  operands.x = wide.view().channels(0, 16);
  copy_tensor(one.x, wide.view().channels(0, 16));
  expect_in(halo.run(operands).message(), {"x: its pixels are 19 elements", "16 bytes"});
  general.run(operands).or_throw();
  EXPECT_EQ(one.outputs(), expected);
  expect_usable();
}

TEST_F(GpuErrors, OperandsThatOverlapOrLieElsewhere) {
  const Stage stage = parse_stage("f16:n2h8c16k16r3pad1+bias+relu");
  GpuCase one(stage, Values::integers, gpu0), host(stage, Values::integers, {});
  const Plan plan(stage, one.w, options_for(gpu0));
  Operands operands = one.operands();
  operands.y = one.x;
  expect_in(plan.run(operands).message(), {"y and x overlap"});
  operands = one.operands();
  operands.x = host.x;
  expect_in(plan.run(operands).message(), {"x: it is on cpu, expected cuda"});
  operands = one.operands();
  operands.bias = host.bias;
  expect_in(plan.run(operands).message(), {"bias: it is on cpu"});
  operands = one.operands();
  operands.y.device.index = 1;
  expect_in(plan.run(operands).message(), {"y: it is on cuda:1, expected cuda"});
  Plan weights(stage, options_for(gpu0));
  const Tensor on_gpu = one.w.to(gpu0);
  ConstTensorView elsewhere = on_gpu;
  elsewhere.device.index = 1;
  expect_in(message_of([&] { weights.set_weights(elsewhere); }), {"weights", "cuda:1"});
  expect_usable();
}

TEST_F(GpuErrors, CopyNeedsEqualTypesAndShapes) {
  Tensor a(DType::f32, {2, 3}, gpu0), b(DType::f32, {3, 2}), c(DType::f16, {2, 3});
  expect_in(message_of([&] { copy_tensor(a, b); }), {"copy", "same type and shape"});
  expect_in(message_of([&] { copy_tensor(a, c); }), {"copy", "same type and shape"});
  expect_usable();
}

// An illegal access ends every use of the GPU in its process: CUDA offers no way back but a new
// process. So this one runs in a child, which must name the error and still compute on the CPU.
TEST_F(GpuErrors, StickyErrorIsNamedAndTheCpuGoesOn) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const Stage stage = parse_stage("n2h8c3k4r3+bias");
        GpuCase one(stage, Values::integers, gpu0);
        const Plan plan(stage, one.w, options_for(gpu0, "general"));
        Operands operands = one.operands();
        operands.x.data = reinterpret_cast<void*>(0x10000);  // nobody's memory
        plan.run(operands).or_throw();
        const std::string waiting = message_of([&] { static_cast<void>(one.y.to({})); });
        const std::string next = plan.run(one.operands()).message();
        GpuCase host(stage, Values::integers, {});
        const Status cpu = Plan(stage, host.w, options_for({})).run(host.operands());
        const bool named = waiting.find("illegal memory access") != std::string::npos &&
                           next.find("illegal memory access") != std::string::npos &&
                           next.find("general") != std::string::npos;
        std::fprintf(stderr, "waiting: %s\nnext: %s\ncpu: %s\n", waiting.c_str(), next.c_str(),
                     cpu.ok() ? "works" : cpu.message().c_str());
        std::_Exit(named && cpu.ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "cpu: works");
}

}  // namespace
}  // namespace convoy
