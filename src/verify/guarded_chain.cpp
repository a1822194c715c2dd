#include "verify/guarded_chain.hpp"

#include <optional>

namespace convoy::verify {

ChainResult ChainGuard::run(const Bound& bound, const ChainInputs& inputs, bool inner) {
  using Place = std::optional<std::size_t>;
  const Chain chain = inputs.chain;
  const std::size_t size = chain.size();
  const bool gpu = bound.on_gpu(), folds = bound.kernel().facts().folds;
  constexpr Layout nhwc = Layout::nhwc;
  std::vector<Stage> stages = stages_alone(chain);
  if (chain.mean) stages.back().n = chain.back().n;

  fences_.clear();
  const ConstTensorView values = inputs.x.view();
  const std::size_t x =
      fences_.add("x", values.dtype, {values.shape.begin(), values.shape.begin() + values.rank},
                  chain.front().layout, Views::dense, &inputs.x);
  std::vector<Place> bias(size), kept(size);
  for (std::size_t i = 0; i < size; ++i) {
    const Tensor& given = inputs.bias[i];
    if (given.view() && !folds)
      bias[i] = fences_.add("bias", DType::f32, {given.elements()}, nhwc, Views::dense, &given);
    if (!inner || i + 1 == size) continue;
    Stage stage = stages[i];
    stage.layout = nhwc;
    kept[i] = fences_.add("inner y", DType::f32, y_shape(stage), nhwc, Views::dense, nullptr);
  }
  const std::size_t y = fences_.add("y", chain.back().output_dtype(gpu), y_shape(stages.back()),
                                    chain.back().layout, Views::dense, nullptr);
  Place labels;
  if (chain.mean)
    labels = fences_.add("labels", DType::i32, {chain.back().n}, nhwc, Views::dense, nullptr);
  fences_.place();

  const auto floats = [&](Place at) {
    return at ? static_cast<float*>(fences_.view(*at).data) : nullptr;
  };
  std::vector<StageArgs> later;
  for (std::size_t i = 1; i < size; ++i)
    later.push_back({.bias = floats(bias[i]), .inner_y = floats(kept[i])});
  RunArgs args;
  args.bias = floats(bias[0]);
  args.inner_y = floats(kept[0]);
  args.n = chain.front().n;
  args.x = fences_.view(x).data;
  args.x_stride = dense_x(chain.front(), args.n);
  args.y = fences_.view(y).data;
  args.y_stride = dense_y(chain.back(), args.n);
  args.later = later;
  if (labels) args.labels = static_cast<std::int32_t*>(fences_.view(*labels).data);
  ChainResult result;
  const Status status = bound.run(args, nullptr, fences_.stream());
  if (!status.ok()) {
    result.error = "refused to run: " + status.message();
    return result;
  }
  fences_.fetch();
  result.y = fences_.floats(y);
  for (const Place& at : kept)
    if (at) result.inner.push_back(fences_.floats(*at));
  if (labels) result.labels = fences_.integers(*labels);
  result.error = fences_.damage();
  return result;
}

}  // namespace convoy::verify
