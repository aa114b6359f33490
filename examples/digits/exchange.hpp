// How a trainer sums gradients over all ranks, whatever carries them.
//
// `start` hands over a bucket; it belongs to the exchange until `finish` has returned. Every rank starts the
// same buckets in the same order. `progress` is awaited between pieces of computation and gives the engine a
// turn; it does not wait for anybody. `finish` waits for everything started; after an error the buckets'
// contents are unspecified and training cannot go on.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>

#include <span>

namespace digits {

class gradient_exchange {
 public:
  virtual ~gradient_exchange() = default;
  virtual void start(std::span<float> bucket) = 0;
  [[nodiscard]] virtual chorale::task<> progress() = 0;
  [[nodiscard]] virtual chorale::task<chorale::result<>> finish() = 0;
};

}  // namespace digits
