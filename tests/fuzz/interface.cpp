// The interface under any views: ranks, shapes, strides, types, devices and addresses that a caller
// may get wrong. A call refuses them, or touches only the memory that they describe: each view has
// a block of exactly that from malloc, so that the sanitizer sees a step beside it.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/dlpack.hpp"
#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "fuzz/memory_limit.hpp"
#include "unit/foreign_dlpack.hpp"

namespace {

using namespace convoy;

/// The input, taken byte by byte; zeros behind its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  unsigned next() { return at_ == end_ ? 0 : *at_++; }
  bool empty() const { return at_ == end_; }
  /// Mostly small, sometimes absurd.
  Index number() {
    const unsigned kind = next();
    if (kind < 200) return static_cast<Index>(kind % 9) - 1;
    Index value = 0;
    for (unsigned i = 0; i < kind % 9; ++i)
      value = static_cast<Index>(static_cast<std::uint64_t>(value) << 8 | next());
    return value;
  }

 private:
  const std::uint8_t *at_, *end_;
};

std::size_t bytes_of(DType dtype) {
  return static_cast<unsigned>(dtype) <= static_cast<unsigned>(DType::i32) ? size_of(dtype) : 4;
}

/// Views and the memory behind them.
class Views {
 public:
  explicit Views(Bytes& bytes) : bytes_(bytes) {}

  /// The right view of a tensor, changed as the input says.
  TensorView of(DType dtype, const std::vector<Index>& shape) {
    TensorView view(nullptr, dtype, shape);
    for (unsigned changes = bytes_.next() % 4; changes > 0; --changes) change(view);
    give_memory(view);
    return view;
  }

 private:
  void change(TensorView& view) {
    const std::size_t axis = bytes_.next() % 5;
    switch (bytes_.next() % 9) {
      case 0:
        view.rank = static_cast<int>(bytes_.number());
        break;
      case 1:
        view.shape[axis] = bytes_.number();
        break;
      case 2:
        view.stride[axis] = bytes_.number();
        break;
      case 3:
        view.dtype = static_cast<DType>(bytes_.next() % 8);
        break;
      case 4:
        view.device.index = static_cast<int>(bytes_.number());
        break;
      case 5:
        view.device.kind = static_cast<DeviceKind>(bytes_.next() % 4);
        break;
      case 6:
        misaligned_ = true;
        break;
      case 7:
        none_ = true;
        break;
      default:
        stretch(view, 1 + static_cast<Index>(bytes_.next() % 7));
    }
  }
  // A slice of channels of something wider, which is right for x and y.
  static void stretch(TensorView& view, Index gap) {
    if (view.rank < 2 || view.rank > 5) return;
    auto axis = static_cast<std::size_t>(view.rank - 1);
    Index step = view.shape[axis] + gap;
    while (axis-- > 0) {
      view.stride[axis] = step;
      if (__builtin_mul_overflow(step, view.shape[axis], &step)) return;
    }
  }
  // From the first to the last element that strides and shape reach; null where that is too much.
  void give_memory(TensorView& view) {
    const bool none = std::exchange(none_, false), misaligned = std::exchange(misaligned_, false);
    if (none) return;
    __int128 low = 0, high = 1;
    for (int axis = 0; axis < view.rank && axis < 5; ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      if (view.shape[i] < 1) high = 1;
      const __int128 reach =
          view.shape[i] > 1 ? (static_cast<__int128>(view.shape[i]) - 1) * view.stride[i] : 0;
      (reach < 0 ? low : high) += reach;
    }
    constexpr __int128 most = 1 << 16;
    if (-low > most || high > most) return;
    const std::size_t element = bytes_of(view.dtype);
    const auto before = static_cast<std::size_t>(-low) * element;
    const auto bytes = before + static_cast<std::size_t>(high) * element;
    blocks_.emplace_back(static_cast<char*>(std::malloc(bytes + (misaligned ? 1 : 0))));
    std::memset(blocks_.back().get(), 0, bytes);
    view.data = blocks_.back().get() + before + (misaligned ? 1 : 0);
  }

  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  Bytes& bytes_;
  bool none_ = false, misaligned_ = false;
  std::vector<std::unique_ptr<char, Free>> blocks_;
};

constexpr const char* stages[] = {
    "n2h3w4c2k3r3pad1+bias+relu+max2",
    "f16:n1h4c3k2r1+norm+keep(pre,act)",
    "n2h3c2k2r1+lif(2,1)+t2+max2+keep(idx)",
    "u8:n2h4c3k2r3pad1nchw+hold+if(1)+t2",
    "n2h8c16k8r3pad1+max3s2p1",
    "n3h1c5k4r1+bias",
};

struct Made {
  Stage stage;
  Plan plan;
  explicit Made(const char* text) : stage(parse_stage(text)), plan(stage, options()) {
    plan.set_weights(Tensor(DType::f32, w_shape(stage)));
  }
  static PlanOptions options() {
    PlanOptions options;
    options.threads = 1;
    options.use_tuning = false;
    return options;
  }
};

Made& made(unsigned which) {
  static std::array<std::optional<Made>, std::size(stages)> all;
  auto& one = all[which % all.size()];
  if (!one) one.emplace(stages[which % all.size()]);
  return *one;
}

void run_plan(Bytes& bytes, Views& views) {
  Made& m = made(bytes.next());
  Stage s = m.stage;
  s.n = 1 + static_cast<Index>(bytes.next() % 4);
  const DType out = s.output_dtype();
  // Riders that the stage lacks get an operand sometimes.
  const unsigned extra = bytes.next();
  const auto wanted = [&](bool has, unsigned bit) { return has != ((extra >> bit & 7) == 7); };
  Operands o;
  const TensorView x = views.of(s.dtype, x_shape(s));
  o.x = x;
  o.y = views.of(out, y_shape(s));
  if (wanted(s.bias, 0)) o.bias = views.of(DType::f32, {s.k});
  if (wanted(s.norm, 1)) o.norm_scale = views.of(DType::f32, {s.c});
  if (wanted(s.norm, 2)) o.norm_shift = views.of(DType::f32, {s.c});
  if (wanted(s.keep.pre, 3)) o.pre = views.of(out, pre_shape(s));
  if (wanted(s.keep.act, 4)) o.act = views.of(out, pre_shape(s));
  if (wanted(s.keep.idx, 5)) o.idx = views.of(DType::i32, y_shape(s));
  if (wanted(s.act.is_neuron(), 0)) o.membrane_in = views.of(DType::f32, membrane_shape(s));
  if (wanted(s.act.is_neuron(), 1)) o.membrane_out = views.of(DType::f32, membrane_shape(s));
  if (bytes.next() % 8 == 0) o.y = x;  // one over the other
  const Status status = m.plan.run(o);
  if (status.ok() == !status.message().empty()) std::abort();
}

void move_around(Bytes& bytes, Views& views) {
  const TensorView a = views.of(DType::f32, {2, 3, 4}), b = views.of(DType::f32, {2, 3, 4});
  static_cast<void>(describe(a));
  static_cast<void>(a.elements());
  static_cast<void>(a.contiguous());
  static_cast<void>(a.channels(bytes.number(), bytes.number()));
  copy_tensor(a, b);
  DLPackOwner lent = to_dlpack(a);
  lent->dl_tensor.ndim = static_cast<int>(bytes.number());
  if (lent->dl_tensor.ndim > 5) lent->dl_tensor.ndim = 6;  // it has room for five
  lent->dl_tensor.dtype.bits = static_cast<std::uint8_t>(8 * (bytes.next() % 5));
  lent->dl_tensor.dtype.code = static_cast<std::uint8_t>(bytes.next() % 6);
  lent->dl_tensor.device.device_id = static_cast<int>(bytes.number());
  static_cast<void>(describe(from_dlpack(*lent)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  for (int call = 0; call < 4 && !bytes.empty(); ++call) {
    Views views(bytes);
    try {
      switch (bytes.next() % 5) {
        case 0: {
          Made& m = made(bytes.next());
          const Stage& s = m.stage;
          m.plan.set_weights(views.of(bytes.next() % 2 ? DType::f32 : s.dtype, w_shape(s)));
          break;
        }
        case 1: {
          const std::vector<Index> k{3};
          fold_batchnorm(views.of(DType::f32, {3, 1, 2, 2}), views.of(DType::f32, k),
                         views.of(DType::f32, k), views.of(DType::f32, k), views.of(DType::f32, k),
                         views.of(DType::f32, k));
          break;
        }
        case 2:
          move_around(bytes, views);
          break;
        default:
          run_plan(bytes, views);
      }
    } catch (const Error& error) {
      if (!*error.what()) std::abort();
    }
  }
  return 0;
}
