#include <chorale/api/batch.hpp>

namespace chorale::detail {

task<void> run_batch(std::vector<ticket> calls) {
  std::vector<started> running;
  running.reserve(calls.size());
  for (ticket& c : calls) running.push_back(std::move(c).start());
  error first;
  for (started& op : running) {
    auto ended = co_await as_result(std::move(op));
    if (!ended && !first) first = std::move(ended).error();
  }
  if (first) throw failure{std::move(first)};
}

}  // namespace chorale::detail
