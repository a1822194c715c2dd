// A run on a GPU whose images come from the host, or whose outputs go there: in chunks, so that
// further images are on their way while the GPU works.
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "network/copy_past_caches.hpp"
#include "network/host_path.hpp"
#include "network/impl.hpp"

namespace convoy {
namespace {

// Pinned images are copied by the GPU alone: few launches. Others pass through threads, whose first
// chunk nothing hides.
constexpr Index copied_chunk_bytes = Index{2} << 20, staged_chunk_bytes = Index{1} << 20;
// Below it the kernel reads images from the host's memory sooner than a copy is set up.
constexpr Index small_bytes = Index{64} << 10;
constexpr std::int32_t no_label = -1;

}  // namespace

class Network::Impl::HostRun {
 public:
  HostRun(const Impl& network, network::Context& context, const Operands& operands,
          network::Times* times, Stream stream)
      : network_(network),
        context_(context),
        given_(operands),
        times_(times),
        stream_(stream),
        inverse_(network.inverse_for(operands.images)),
        type_(inverse_ != nullptr ? network.input().type : operands.images.dtype),
        image_bytes_(network.input_values() * static_cast<Index>(size_of(type_))),
        output_bytes_((network.classes() + 1) * 4),
        n_(operands.images.shape[0]),
        path_(context.host_path()) {}

  /// On return images and outputs of the caller are no longer in use, also where it throws.
  Status run() {
    try {
      if (from_host_ && network_.program.any_n &&
          n_ <= small_bytes / std::max(image_bytes_, output_bytes_))
        return run_small();
      lay_out();
      if (staging_)
        network_.program.threads->for_each(network_.program.threads->count(),
                                           [&](Index, int) { work(); });
      else
        run_in_order();
      if (!failed_) {
        while (retired_ < chunks_.count) wait_for_oldest();
        return {};
      }
    } catch (...) {
      drain();
      throw;
    }
    drain();
    return failure_;
  }

  /// Images with a value that no pixel has, in any order.
  const std::vector<Index>& odd() const { return odd_; }

 private:
  void lay_out();
  Status run_small();
  void wait_for_labels(std::int32_t* labels) const;

  void run_in_order();
  void work();
  bool room_comes_for(Index k, bool enqueues);
  void fill(Index first, Index end, std::byte* to);
  void turn_back(Index first, Index end, std::byte* to);
  Outputs outputs_of(std::byte* slot, Index images, Index first) const;
  void hand_out(const Outputs& from, Index first, Index n) const;

  // Of several threads by the one that enqueues.
  void keep_going(Index under_way);
  void enqueue();
  void wait_for_oldest();
  void retire();

  void fail(Status status);
  void drain() const noexcept;

  std::atomic<Index>& left(Index k) { return left_[static_cast<std::size_t>(ring_.slot(k))]; }
  bool has_room(Index k) const {
    return k < retired_.load(std::memory_order_acquire) + ring_.slots;
  }
  std::byte* slot(std::byte* all, Index k, Index bytes_of_image) const {
    return all + ring_.slot(k) * ring_.images * bytes_of_image;
  }

  const Impl& network_;
  network::Context& context_;
  const Operands& given_;
  network::Times* times_;
  Stream stream_;
  const network::PixelsOfValues* inverse_;  // null: the images are pixels, or values stay such
  DType type_;                              // of the images as they go to the GPU
  Index image_bytes_, output_bytes_, n_;
  network::HostPath& path_;
  const bool from_host_ = given_.images.device == Device{},
             logits_to_host_ = given_.logits && given_.logits.device == Device{},
             labels_to_host_ = given_.labels && given_.labels.device == Device{};

  network::Ring ring_;
  network::Chunks chunks_;
  std::byte* staging_ = nullptr;       // null: images are copied from where they are
  std::byte* images_there_ = nullptr;  // on the GPU
  std::byte* outputs_here_ = nullptr;  // null: outputs go to where the caller wants them

  static constexpr Index parts = 64;                            // of a chunk, that threads fill
  std::atomic<Index> next_part_{0};                             // counted over all chunks
  std::array<std::atomic<Index>, network::most_slots> left_{};  // of the chunk in each slot
  std::atomic<bool> has_enqueuer_{false};
  Index enqueued_ = 0;             // chunks
  std::atomic<Index> retired_{0};  // chunks whose outputs are where the caller wants them
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // of what follows
  Status failure_;
  std::vector<Index> odd_;
};

void Network::Impl::HostRun::lay_out() {
  const bool pinned = from_host_ && inverse_ == nullptr &&
                      gpu::is_pinned(network_.program.machine.device, given_.images.data);
  const bool copied = pinned || !from_host_;
  ring_ = network_.program.any_n
              ? network::ring_of_bytes(std::max(image_bytes_, output_bytes_),
                                       copied ? copied_chunk_bytes : staged_chunk_bytes)
              : network::ring_of_images(image_bytes_, network_.program.at_once);
  chunks_ = network::cut_into_chunks(n_, ring_.images);
  const Index images = ring_.slots * ring_.images;
  if (from_host_) images_there_ = path_.images(images * image_bytes_);
  if (inverse_ != nullptr || (!copied && ring_.slots > 1))
    staging_ = path_.staging(images * image_bytes_);
  const bool fit = network_.program.any_n || output_bytes_ <= network::ring_bytes / images;
  if ((logits_to_host_ || labels_to_host_) && fit)
    outputs_here_ = path_.outputs(images * output_bytes_);
  for (std::atomic<Index>& of_slot : left_) of_slot = parts;
}

/// Where the outputs of images from `first` on go: of what is on the host to `slot`, if there is
/// one.
Network::Impl::Outputs Network::Impl::HostRun::outputs_of(std::byte* slot, Index images,
                                                          Index first) const {
  Outputs to = network_.outputs_at(given_, first);
  if (!slot) return to;
  auto* const logits = reinterpret_cast<float*>(slot);
  if (logits_to_host_) to.logits = logits;
  if (labels_to_host_)
    to.labels = reinterpret_cast<std::int32_t*>(logits + images * network_.classes());
  return to;
}

void Network::Impl::HostRun::hand_out(const Outputs& from, Index first, Index n) const {
  const Outputs to = network_.outputs_at(given_, first);
  if (logits_to_host_) std::copy_n(from.logits, n * network_.classes(), to.logits);
  if (labels_to_host_) std::copy_n(from.labels, n, to.labels);
}

/// Images [first, end) as they go to the GPU, past the caches.
void Network::Impl::HostRun::fill(Index first, Index end, std::byte* to) {
  const Index values = network_.input_values(), count = (end - first) * values;
  if (inverse_ == nullptr) {
    network::copy_past_caches(bytes_at(given_.images, first * values),
                              static_cast<std::size_t>((end - first) * image_bytes_), to);
  } else {
    const auto* const from = static_cast<const float*>(given_.images.data) + first * values;
    if (!inverse_->run(from, count, reinterpret_cast<std::uint8_t*>(to), true))
      turn_back(first, end, to);
  }
  network::end_copies_past_caches();
}

/// Their values to pixels; those that have others are noted.
void Network::Impl::HostRun::turn_back(Index first, Index end, std::byte* to) {
  const Index values = network_.input_values();
  const auto* const from = static_cast<const float*>(given_.images.data);
  for (Index image = first; image < end; ++image, to += image_bytes_) {
    if (inverse_->run(from + image * values, values, reinterpret_cast<std::uint8_t*>(to))) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    odd_.push_back(image);
  }
}

/// The least latency: no copy, no event. The kernel reads the images from the host and writes what
/// it finds there.
Status Network::Impl::HostRun::run_small() {
  std::byte *const staging = path_.staging(small_bytes), *const here = path_.outputs(small_bytes);
  if (inverse_ != nullptr)
    turn_back(0, n_, staging);
  else
    std::memcpy(staging, given_.images.data, static_cast<std::size_t>(n_ * image_bytes_));
  const Outputs outputs = outputs_of(here, n_, 0);
  if (labels_to_host_) std::fill_n(outputs.labels, n_, no_label);
  Status status = network_.run_chunk(context_, staging, type_, n_, outputs, times_, stream_, true);
  if (!status.ok()) return status;
  // Behind the last label there is nothing to wait for but the end of the kernel.
  if (labels_to_host_ && !logits_to_host_)
    wait_for_labels(outputs.labels);
  else
    gpu::synchronize(network_.program.machine.device, stream_);
  hand_out(outputs, 0, n_);
  return {};
}

void Network::Impl::HostRun::wait_for_labels(std::int32_t* labels) const {
  constexpr int polls = 4096;  // between two questions to CUDA, which knows of failures
  for (Index i = 0; i < n_; ++i) {
    const std::atomic_ref<std::int32_t> label(labels[i]);
    for (int poll = 1; label.load(std::memory_order_acquire) == no_label; ++poll) {
      if (poll < polls) continue;
      if (gpu::is_done(network_.program.machine.device, stream_)) return;
      poll = 0;
    }
  }
}

void Network::Impl::HostRun::run_in_order() {
  while (enqueued_ < chunks_.count && !failed_) {
    while (!has_room(enqueued_)) wait_for_oldest();
    enqueue();
  }
}

/// Of one of several threads: takes parts in the order of the chunks, so that those of the first
/// are done first. The first thread that comes also enqueues the chunks that are filled: CUDA's
/// calls take several times as long where each comes from another core.
void Network::Impl::HostRun::work() {
  const bool enqueues = !has_enqueuer_.exchange(true);
  try {
    for (;;) {
      const Index part = next_part_.fetch_add(1, std::memory_order_relaxed);
      const Index k = part / parts;
      if (k >= chunks_.count) break;
      if (!room_comes_for(k, enqueues)) return;
      const Index first = chunks_.begin(k), n = chunks_.images(k);
      const Index begin = n * (part % parts) / parts, end = n * (part % parts + 1) / parts;
      fill(first + begin, first + end, slot(staging_, k, image_bytes_) + begin * image_bytes_);
      left(k).fetch_sub(1, std::memory_order_release);
      // Others wait for room where many are under way.
      if (enqueues) keep_going(ring_.slots / 2);
    }
    // Until the run is over: a thread that fell asleep would wake too late for the next one.
    room_comes_for(chunks_.count - 1 + ring_.slots, enqueues);
  } catch (...) {
    fail(current_failure());
  }
}

/// Waits until the chunk that had k's slot is done; false: the run has failed. Chunks before k are
/// filled by threads that wait for earlier ones alone, and the one that enqueues does so here too,
/// so that this ends.
bool Network::Impl::HostRun::room_comes_for(Index k, bool enqueues) {
  while (!has_room(k) && !failed_) {
    if (enqueues) keep_going(0);
    std::this_thread::yield();
  }
  return !failed_;
}

/// Enqueues chunks that are filled, and retires those that are done where more than `under_way`
/// are.
void Network::Impl::HostRun::keep_going(Index under_way) {
  while (enqueued_ < chunks_.count && has_room(enqueued_) &&
         left(enqueued_).load(std::memory_order_acquire) == 0 && !failed_)
    enqueue();
  while (enqueued_ - retired_ > under_way && path_.computed(ring_.slot(retired_)).reached())
    retire();
}

/// The next chunk: its copy, and all that the network does.
void Network::Impl::HostRun::enqueue() {
  const Index k = enqueued_, at = ring_.slot(k), first = chunks_.begin(k), n = chunks_.images(k);
  const void* x = bytes_at(given_.images, first * network_.input_values());
  if (from_host_) {
    std::byte* const there = slot(images_there_, k, image_bytes_);
    const bool beside = ring_.slots > 1;
    const Stream copies = beside ? path_.copies() : stream_;
    gpu::copy_async(network_.program.machine.device, there,
                    staging_ ? slot(staging_, k, image_bytes_) : x,
                    static_cast<std::size_t>(n * image_bytes_), copies);
    if (beside) {
      path_.copied(at).record(copies);
      path_.copied(at).hold_back(stream_);
    }
    x = there;
  }
  std::byte* const here = outputs_here_ ? slot(outputs_here_, k, output_bytes_) : nullptr;
  Status status = network_.run_chunk(context_, x, type_, n, outputs_of(here, ring_.images, first),
                                     times_, stream_);
  if (!status.ok()) return fail(std::move(status));
  path_.computed(at).record(stream_);
  ++enqueued_;
}

void Network::Impl::HostRun::wait_for_oldest() {
  path_.computed(ring_.slot(retired_)).wait();
  retire();
}

/// The oldest chunk is done: its outputs go to the caller, its slot to a later chunk.
void Network::Impl::HostRun::retire() {
  const Index k = retired_, first = chunks_.begin(k);
  if (outputs_here_)
    hand_out(outputs_of(slot(outputs_here_, k, output_bytes_), ring_.images, first), first,
             chunks_.images(k));
  left(k) = parts;
  retired_.store(k + 1, std::memory_order_release);
}

void Network::Impl::HostRun::fail(Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_) failure_ = std::move(status);
  failed_ = true;
}

/// Waits for what still reads and writes the memory of a run that failed.
void Network::Impl::HostRun::drain() const noexcept {
  for (const Stream stream : {path_.copies(), stream_}) {
    try {
      gpu::synchronize(network_.program.machine.device, stream);
    } catch (...) {
      continue;  // the run's own failure is the one to tell
    }
  }
}

Status Network::Impl::run_by_host(network::Context& context, const Operands& operands,
                                  network::Times* times, Stream stream) const {
  if (gpu::is_captured(program.machine.device, stream))
    return {StatusCode::invalid_operand,
            "the stream is being captured in a CUDA graph, and this run must wait for images or "
            "outputs on the host. Put all of them on " +
                to_text(program.machine.device) + "."};
  HostRun run(*this, context, operands, times, stream);
  Status status = run.run();
  return status.ok() ? run_odd(operands, run.odd(), times, stream) : status;
}

}  // namespace convoy
