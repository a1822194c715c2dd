#include "network/context.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/gpu.hpp"
#include "core/gpu_rows.hpp"
#include "core/overloaded.hpp"
#include "network/convert.hpp"

namespace convoy::network {
namespace {

using Clock = std::chrono::steady_clock;

Tensor memory_for(Size bytes, Index n, Device device) {
  const auto no_memory = [&] {
    return NoMemory(
        fmt::format("batch {}: no memory for the {} bytes between the layers for this number of "
                    "images. Use a smaller batch.",
                    n, bytes.value()));
  };
  if (!bytes.fits()) throw no_memory();
  try {
    return Tensor(DType::u8, {bytes.value()}, device);
  } catch (const Error&) {
    throw no_memory();
  } catch (const std::bad_alloc&) {
    throw no_memory();
  }
}

/// How to walk a dense tensor whose pixels lie further apart. w: pixels of a row.
Strides with_pitch(Strides dense, Index channels, Index pitch) {
  if (pitch == channels) return dense;
  const auto wider = [&](Index stride) { return stride / channels * pitch; };
  return {wider(dense.t), wider(dense.n), wider(dense.h), pitch, 1};
}

}  // namespace

Context::Context(const Program& program) : program_(program), given_(program.buffers.size()) {
  std::size_t most = 1;
  for (const Step& step : program.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step)) most = std::max(most, kernel->count);
  later_.resize(most - 1);
}

void Context::reserve(Index n) {
  if (capacity_ > 0 && (n <= capacity_ || program_.any_n)) return;
  Program::Arena arena = program_.arena(n);
  memory_ = Tensor();  // first: both may not fit
  capacity_ = 0;
  memory_ = memory_for(arena.bytes, n, program_.machine.device);
  memory_at_ = memory_.data<void>();
  arena_ = std::move(arena);
  capacity_ = n;
}

HostPath& Context::host_path() {
  if (!host_path_) host_path_ = std::make_unique<HostPath>(program_.machine.device);
  return *host_path_;
}

namespace {

std::byte* grown(Tensor& memory, Index bytes, Device device) {
  if (memory.elements() < bytes) {
    memory = Tensor();  // first: both may not fit
    memory = Tensor(DType::u8, {bytes}, device);
  }
  return memory.data<std::byte>();
}

}  // namespace

std::byte* Context::scratch(Index bytes) {
  return grown(scratch_, bytes, program_.machine.device);
}
std::byte* Context::results(Index bytes) {
  return grown(results_, bytes, program_.machine.device);
}

Located Context::where(graph::ValueId id) const {
  const Place& place = program_.places[id];
  if (place.buffer == graph::no_id) return {};
  const auto bytes = static_cast<Index>(size_of(program_.value(id).type));
  std::byte* const base = given_[place.buffer] ? static_cast<std::byte*>(given_[place.buffer])
                                               : arena_memory() + arena_.buffer[place.buffer];
  return {base + place.offset * bytes, place.pitch};
}

Status Context::run(const Pass& pass) {
  reserve(pass.n);
  std::fill(given_.begin(), given_.end(), nullptr);
  has_logits_ = false;
  const graph::Graph& graph = program_.graph;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::ValueId id =
        i == 0 && pass.converted ? program_.converted_input() : graph.inputs[i];
    given_[program_.places[id].buffer] = const_cast<void*>(pass.inputs[i]);
  }
  // The last step of an output writes it where the caller wants it, if kernels can write there.
  for (std::size_t i = 0; i < pass.outputs.size(); ++i) {
    const graph::ValueId id = graph.outputs[i];
    const bool aligned =
        !program_.on_gpu() || reinterpret_cast<std::uintptr_t>(pass.outputs[i]) % 16 == 0;
    if (pass.outputs[i] && aligned && program_.owns_buffer(id) &&
        !given_[program_.places[id].buffer])
      given_[program_.places[id].buffer] = pass.outputs[i];
  }
  for (std::size_t i = 0; i < program_.steps.size(); ++i)
    if (Status status = run_step(program_.steps[i], i, pass); !status.ok()) return status;
  return give_outputs(pass);
}

void Context::use_workspace(std::size_t step) {
  const Index at = arena_.workspace[step];
  workspace_ = at < 0 ? nullptr : arena_memory() + at;
}

Status Context::run_step(const Step& step, std::size_t number, const Pass& pass) {
  use_workspace(number);
  return std::visit(
      Overloaded{[&](const ConvertStep& s) {
                   return pass.converted ? Status()
                                         : convert(s, pass, where(s.x).data, where(s.y).data);
                 },
                 [&](const KernelStep& s) {
                   return program_.any_n ? run_to_the_end(s, pass)
                                         : run_kernel(s, pass, where(s.x), where(s.y), nullptr);
                 },
                 [&](const CopyStep& s) {
                   const auto begin = pass.times ? Clock::now() : Clock::time_point();
                   Status status = copy(s, pass.n, where(s.from), where(s.to), pass.stream);
                   if (pass.times && status.ok()) add_since(begin, s.layer, 1, true, pass);
                   return status;
                 },
                 [&](const MeanStep& s) { return mean(s, pass); }},
      step);
}

Status Context::run_kernel(const KernelStep& step, const Pass& pass, const Located& x,
                           const Located& y, float* const* inner) {
  const Chain chain = step.bound->chain();
  const auto begin = pass.times ? Clock::now() : Clock::time_point();
  RunArgs args;
  args.n = pass.n * step.fold;
  args.bias = step.bias.front().data<float>();
  args.x = x.data;
  args.x_stride = with_pitch(dense_x(chain.front(), args.n), chain.front().c, x.pitch);
  args.x_on_host = pass.x_on_host && x.data == pass.inputs[0];
  args.y = y.data;
  args.y_stride = with_pitch(dense_y(chain.back(), args.n), chain.back().k, y.pitch);
  args.labels = program_.any_n ? pass.labels : nullptr;
  for (std::size_t i = 1; i < step.count; ++i) {
    later_[i - 1] = {};
    later_[i - 1].bias = step.bias[i].data<float>();
    later_[i - 1].inner_y = inner && i + 1 < step.count ? inner[i] : nullptr;
  }
  args.inner_y = inner && step.count > 1 ? inner[0] : nullptr;
  args.later = std::span(later_.data(), step.count - 1);
  const bool by_layer = step.bound->kernel().facts().keeps_inner && !program_.on_gpu();
  args.seconds = pass.times && by_layer ? pass.times->seconds + step.first : nullptr;
  const Status status = step.bound->run(args, workspace_, pass.stream);
  if (!status.ok())
    return {status.code(), program_.layer(step.first).name + ": " + status.message()};
  if (pass.times) add_since(begin, step.first, step.count, !by_layer, pass);
  return {};
}

/// The kernel gives logits and labels itself.
Status Context::run_to_the_end(const KernelStep& step, const Pass& pass) {
  void* const y = pass.logits ? pass.logits : pass.outputs.empty() ? nullptr : pass.outputs[0];
  has_logits_ = true;
  return run_kernel(step, pass, where(step.x), {y, program_.value(step.y).channels()}, nullptr);
}

void Context::add_since(Clock::time_point begin, std::size_t first, std::size_t count,
                        bool adds_seconds, const Pass& pass) {
  if (program_.on_gpu()) gpu::synchronize(program_.machine.device, pass.stream);
  const auto since = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const Clock::time_point end = Clock::now();
  Times& times = *pass.times;
  if (adds_seconds)
    times.seconds[first] += since(begin, end) * (program_.on_gpu() ? 1 : program_.threads->count());
  if (times.spans)
    times.spans->push_back(
        {first, count, pass.n, since(times.begin, begin), since(times.begin, end)});
}

Status Context::convert(const ConvertStep& step, const Pass& pass, const void* x, void* y) {
  const Index count = pass.n * program_.image_elements(step.x),
              channels = step.conversion.channels();
  auto* const to = static_cast<float*>(y);
  if (!program_.on_gpu())
    step.conversion.run(*program_.threads, count, x, to);
  else if (step.conversion.of_pixels())
    gpu::values_of_pixels(program_.machine.device, pass.stream, static_cast<const std::uint8_t*>(x),
                          count, channels, step.device_tables.data<float>(), to);
  else
    gpu::normalise(program_.machine.device, pass.stream, static_cast<const float*>(x), count,
                   channels, step.device_tables.data<float>(), to);
  return {};
}

Status Context::copy(const CopyStep& step, Index n, const Located& from, const Located& to,
                     Stream stream) {
  if (!from.data || !to.data)
    return {StatusCode::internal_error, "a copy between values that have no memory"};
  const graph::Value& value = program_.value(step.from);
  const std::size_t element = size_of(value.type);
  const auto bytes = [&](Index channels) { return static_cast<std::size_t>(channels) * element; };
  const std::size_t row = bytes(step.channels), from_pitch = bytes(from.pitch),
                    to_pitch = bytes(to.pitch);
  const auto* const first = static_cast<const std::byte*>(from.data) + bytes(step.from_channel);
  auto* const target = static_cast<std::byte*>(to.data) + bytes(step.to_channel);
  const Index pixels = n * program_.steps_of(step.from) * value.h() * value.w();
  if (program_.on_gpu())
    return gpu::copy_rows(
        program_.machine.device,
        {first, target, row, static_cast<std::size_t>(pixels), from_pitch, to_pitch},
        stream.handle);
  constexpr Index of_a_task = 256;
  program_.threads->for_each((pixels + of_a_task - 1) / of_a_task, [&](Index task, int) {
    const Index end = std::min(pixels, (task + 1) * of_a_task);
    for (Index pixel = task * of_a_task; pixel < end; ++pixel) {
      const auto i = static_cast<std::size_t>(pixel);
      std::memcpy(target + i * to_pitch, first + i * from_pitch, row);
    }
  });
  return {};
}

Status Context::mean_and_labels(graph::ValueId x, Index steps, float* mean, std::int32_t* labels,
                                const Pass& pass) {
  const graph::Value& value = program_.value(x);
  const Index classes = value.elements();
  const void* const from = where(x).data;
  if (!program_.on_gpu()) {
    network::mean_and_labels(*program_.threads, value.type, from, steps, pass.n, classes, mean,
                             labels);
    return {};
  }
  if (!mean || !labels) {  // the kernel writes both
    auto* const own = reinterpret_cast<float*>(scratch(pass.n * (classes + 1) * 4));
    if (!mean) mean = own;
    if (!labels) labels = reinterpret_cast<std::int32_t*>(own + pass.n * classes);
  }
  gpu::mean_and_labels(program_.machine.device, pass.stream, value.type, from, steps, pass.n,
                       classes, mean, labels);
  return {};
}

Status Context::mean(const MeanStep& step, const Pass& pass) {
  const bool ends = step.y == program_.graph.outputs[0];
  auto* const y = static_cast<float*>(where(step.y).data);
  if (ends && (pass.logits || pass.labels)) {  // both at once
    has_logits_ = true;
    return mean_and_labels(step.x, program_.graph.steps, pass.logits ? pass.logits : y, pass.labels,
                           pass);
  }
  return mean_and_labels(step.x, program_.graph.steps, y, nullptr, pass);
}

/// What no step has written where the caller wants it.
Status Context::give_outputs(const Pass& pass) {
  if ((pass.logits || pass.labels) && !has_logits_)
    if (Status status =
            mean_and_labels(program_.graph.outputs[0], 1, pass.logits, pass.labels, pass);
        !status.ok())
      return status;
  for (std::size_t i = 0; i < pass.outputs.size() && !program_.any_n; ++i) {
    const graph::ValueId id = program_.graph.outputs[i];
    if (!pass.outputs[i] || where(id).data == pass.outputs[i]) continue;
    const Index channels = program_.value(id).channels();
    if (Status status = copy({id, id, 0, 0, channels}, pass.n, where(id),
                             {pass.outputs[i], channels}, pass.stream);
        !status.ok())
      return status;
  }
  return {};
}

Contexts::~Contexts() {
  for (const auto& slot : all_) delete slot.load();
}

template <class Fits>
Contexts::Taken Contexts::find(const Fits& fits, bool make) {
  for (std::atomic<Owned*>& slot : all_) {
    Owned* one = slot.load(std::memory_order_acquire);
    if (!one) {
      if (!make) continue;
      auto made = std::make_unique<Owned>(program_);
      made->claim.take();
      if (slot.compare_exchange_strong(one, made.get(), std::memory_order_acq_rel,
                                       std::memory_order_acquire))
        return Taken(made.release());
    }
    if (!one->claim.take()) continue;
    if (fits(*one)) return Taken(one);
    one->claim.give();
  }
  return {};
}

Contexts::Taken Contexts::bound_to(const gpu::StreamFacts& by) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto bound = [&](const Owned& one) { return one.bound && one.by == by; };
  const auto free = [](const Owned& one) { return !one.bound; };
  if (Taken taken = find(bound, false)) return taken;
  const auto bind = [&](Taken taken) {
    if (taken) taken.owned_->by = by, taken.owned_->bound = true;
    return taken;
  };
  if (Taken taken = find(free, true)) return bind(std::move(taken));
  // Programs that make a stream for each request begin again; captures keep theirs.
  if (by.capture != 0 || !gpu::wait_for_all(program_.machine.device)) return {};
  for (const auto& slot : all_)
    if (Owned* const one = slot.load(); one->by.capture == 0) one->bound = false;
  return bind(find(free, false));
}

Contexts::Taken Contexts::take(Stream stream) {
  if (program_.on_gpu()) return bound_to(gpu::facts_of(program_.machine.device, stream));
  return find([](const Owned&) { return true; }, true);
}

}  // namespace convoy::network
