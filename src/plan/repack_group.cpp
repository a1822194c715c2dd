#include "plan/repack_group.hpp"

#include <fmt/core.h>

#include <optional>

#include "plan/bound.hpp"
#include "plan/plan_parts.hpp"

namespace convoy {

RepackGroup::RepackGroup(Device device, Index plans)
    : device_(device),
      changed_(DType::i32, {plans}, device),
      done_(std::make_shared<gpu::Event>(device)) {}

bool RepackGroup::add(Plan& plan, const ConstTensorView& weights, const gpu::FoldedNorm& norm,
                      Stream stream) {
  const auto number = static_cast<Index>(members_.size());
  if (number == changed_.elements())
    throw Error(fmt::format("repack group: a plan more than the {} that it was made for", number));
  Bound& bound = bound_for_repack(plan, weights);
  std::optional<GroupPart> part =
      bound.repack_part(weights, norm, changed_.data<std::int32_t>() + number, stream);
  if (!part) return false;
  watches_.insert(watches_.end(), part->watches.begin(), part->watches.end());
  fills_.insert(fills_.end(), part->fills.begin(), part->fills.end());
  members_.push_back(&bound);
  watch_table_ = {}, fill_table_ = {};
  return true;
}

void RepackGroup::make_tables() {
  if (watch_table_.count > 0) return;
  watch_table_ = gpu::watch_table(device_, watches_);
  fill_table_ = gpu::fill_table(device_, fills_);
}

void RepackGroup::enqueue(Stream stream) {
  if (members_.empty()) return;
  const gpu::StreamFacts facts = gpu::facts_of(device_, stream);
  if (facts.capture != 0)
    throw Error("repack group: the stream is being captured in a CUDA graph. Repack each plan.");
  make_tables();
  for (Bound* const member : members_) member->repacks().follow(facts, stream);
  gpu::compare_group(device_, stream, watch_table_, watches_.front().keys);
  gpu::fill_group(device_, stream, fill_table_, changed_.data<std::int32_t>(), changed_.elements());
  gpu::finish_fills(device_, stream, changed_.data<std::int32_t>(), changed_.elements());
  done_->record(stream);
  for (Bound* const member : members_) {
    member->repacks().filled(done_, facts);
    member->use_repack(stream);
  }
}

}  // namespace convoy
