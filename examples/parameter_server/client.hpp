// The servers of a job as workers and onlookers see them: one peer each, all asked at once.
//
// Belongs to the engine it connects in. The death of a server ends every call with errc::peer_lost.
#pragma once

#include "protocol.hpp"
#include <chorale/chorale.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parameter_server {

struct server_view {
  chorale::peer_handle peer;
  std::uint64_t session = 0;   ///< of this worker
  std::uint64_t number = 0;    ///< of this worker's last push
  std::uint64_t version = 0;   ///< of the parameters pulled last …
  std::uint64_t versions = 0;  ///< … of so many that there will be
  std::size_t first = 0;       ///< which parameters those were
  std::size_t count = 0;
};

class servers {
 public:
  /// Waits for servers that have not started for up to ten seconds.
  [[nodiscard]] static chorale::task<servers> find(std::vector<std::string> addresses, std::string secret,
                                                   std::string name);

  /// Begins a session of that worker at every server.
  [[nodiscard]] chorale::task<> join(std::uint32_t worker);
  enum class which {
    current,
    newer,  ///< waits until every server has a newer version than at the last pull
  };
  /// Every server's part into its place in `parameters`. Throws when the parts are not the whole.
  [[nodiscard]] chorale::task<> pull(std::span<float> parameters, which wanted);
  /// Ends when every server has said what became of its part; each is asked again, with the same number,
  /// where an answer stays away for `patience`. Outcomes are in the order of the servers.
  [[nodiscard]] chorale::task<std::vector<pushed>> push(std::uint32_t worker, std::span<const float> gradient,
                                                        int times);
  [[nodiscard]] chorale::task<std::vector<worker_record>> statistics(std::size_t server);
  [[nodiscard]] chorale::task<> stop();
  [[nodiscard]] chorale::task<> leave();

  [[nodiscard]] std::vector<server_view>& all() noexcept { return all_; }
  /// The training is over at every server, as of the last pull.
  [[nodiscard]] bool over() const noexcept;

 private:
  std::vector<server_view> all_;
};

}  // namespace parameter_server
