// One side of a comparison: processes that speak peers/protocol.hpp, started, asked and ended by the driver.
//
// The destructor ends the commands, waits for the processes a while and kills what is left; when this process
// ends in another way their commands end too, and they with them. For one thread, which ignores SIGPIPE. What
// goes wrong is an error that names the side.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/result.hpp>
#include <chorale/transport/socket.hpp>

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace chorale::bench::versus {

/// How to start a side. FOLDER in an argument becomes the path of the side's own folder.
struct contestant_plan {
  std::string side;     ///< "chorale", "openmpi", "gloo"
  std::string setting;  ///< which of its ways: "vader, CMA"
  /// One command line a process. The first one's stdout answers.
  std::vector<std::vector<std::string>> commands;
  /// Ranks that read commands from the fifo FOLDER/RANK; 0: the first process reads its stdin.
  int fifos = 0;

  [[nodiscard]] std::string label() const { return setting.empty() ? side : side + " (" + setting + ")"; }
};

class contestant {
 public:
  /// Starts it and waits until it is ready.
  [[nodiscard]] static result<std::unique_ptr<contestant>> start(const contestant_plan& plan,
                                                                 duration patience);
  contestant(const contestant&) = delete;
  contestant& operator=(const contestant&) = delete;
  ~contestant();

  /// What it answers to a command, without "= ". errc::unsupported with its reason when it says no;
  /// errc::timed_out or errc::peer_lost when it does not answer, and then no more.
  [[nodiscard]] result<std::string> ask(const std::string& command, duration patience);
  /// What it called itself when it was ready.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const contestant_plan& plan() const noexcept { return plan_; }

 private:
  explicit contestant(contestant_plan plan) : plan_{std::move(plan)} {}
  result<void> make_folder();
  void remove_folder() noexcept;
  result<void> start_processes();
  [[nodiscard]] result<std::string> answer(duration patience);

  contestant_plan plan_;
  std::string name_;
  std::string folder_;
  std::string unread_;
  std::vector<unique_fd> inputs_;
  unique_fd output_;
  std::vector<pid_t> processes_;
};

}  // namespace chorale::bench::versus
