// Options that change every stage of a list, so that one list serves several types and sizes.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>

#include "convoy/stage.hpp"

namespace convoy::cli {

struct StageChanges {
  std::optional<DType> dtype;
  Index images = 0;
  bool without_pool = false, strict = false;

  void add_to(CLI::App& command) {
    command.add_option("--dtype", dtype, "Change the type of every stage")
        ->transform(CLI::CheckedTransformer(std::map<std::string, DType>{
            {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"u8", DType::u8}}));
    command.add_option("--images", images, "Change n of every stage")->check(CLI::PositiveNumber);
    command.add_flag("--without-pool", without_pool, "Leave every stage's pool out");
  }
  Stage apply(Stage stage) const {
    if (dtype) stage.dtype = *dtype;
    if (images > 0) stage.n = images;
    if (without_pool) stage.pool.reset();
    if (without_pool) stage.keep.idx = false;
    if (strict) stage.strict = true;
    return stage;
  }
};

}  // namespace convoy::cli
