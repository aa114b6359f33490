// How a call will be run, found out once: what persistent plans keep, and what every other call finds anew.
#pragma once

#include <chorale/collective/combining.hpp>
#include <chorale/schedule/plan.hpp>

#include <memory>

namespace chorale {

struct prepared_call {
  combining how;
  /// Null: the one-line path.
  std::shared_ptr<const schedule::plan> steps;
  bool wide = false;  ///< folds are kept in accumulators
};

}  // namespace chorale
