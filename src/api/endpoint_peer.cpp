#include <chorale/api/endpoint_peer.hpp>
#include <chorale/async/as_result.hpp>
#include <chorale/async/with_environment.hpp>

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace chorale {

using endpoints::cost_of;
using endpoints::frame_header;
using endpoints::frame_kind;
using endpoints::received_frame;
using endpoints::window_kind;

namespace {

/// How long a goodbye waits to be heard.
constexpr auto farewell = std::chrono::seconds{5};

/// The tensor that a header announces, against what came.
const char* fault_of_tensor(const received_frame& frame) noexcept {
  const frame_header& h = frame.header;
  if (h.element == 0) return nullptr;
  std::uint64_t bytes = size_of(static_cast<dtype>(h.element));
  if (bytes == 0) return "a tensor of unknown element type";
  for (const std::uint64_t extent : frame.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return "a tensor whose shape overflows";
  return bytes == h.size ? nullptr : "a tensor whose shape and size disagree";
}

std::string printable(std::span<const std::byte> raw) {
  std::string text{reinterpret_cast<const char*>(raw.data()), raw.size()};
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

error refused_with(const received_frame& frame, const std::string& whom) {
  const auto sent = static_cast<errc>(frame.header.code);
  const bool known = sent != errc::ok && name_of(sent) != "unknown";
  return error{known ? sent : errc::protocol_error, whom + " refused the request: " + printable(frame.head)};
}

}  // namespace

struct endpoint_peer::pending_send : endpoints::outgoing_frame {
  explicit pending_send(endpoint_peer& to) noexcept : outgoing_frame{on_end}, peer{to} {}
  ~pending_send() {
    if (!done.is_set()) peer.wire_.withdraw(*this);
  }
  static void on_end(outgoing_frame& frame, const error* why_not) noexcept {
    auto& self = static_cast<pending_send&>(frame);
    if (why_not) self.why = *why_not;
    self.done.set();
  }
  endpoint_peer& peer;
  event done;
  error why;
};

struct endpoint_peer::pending_call {
  pending_call(endpoint_peer& to, std::uint64_t number) : peer{to}, id{number} {
    peer.calls_.emplace(id, this);
  }
  pending_call(const pending_call&) = delete;
  pending_call& operator=(const pending_call&) = delete;
  ~pending_call() {
    peer.calls_.erase(id);
    if (answer) peer.wire_.give_back(window_kind::replies, cost_of(answer->header));
  }
  endpoint_peer& peer;
  std::uint64_t id;
  event changed;
  std::optional<received_frame> answer;
};

/// A refusal on its way: nobody awaits it.
struct endpoint_peer::refusal : endpoints::outgoing_frame {
  refusal(endpoint_peer& to, std::uint64_t key, std::string_view text, std::uint64_t of_window)
      : outgoing_frame{on_end},
        peer{to},
        number{key},
        why{text.substr(0, endpoints::longest_refusal)},
        cost{of_window} {}
  static void on_end(outgoing_frame& frame, const error*) noexcept {
    auto& self = static_cast<refusal&>(frame);
    self.peer.drop_refusal(self);
  }
  endpoint_peer& peer;
  std::uint64_t number;
  std::string why;
  std::uint64_t cost;
};

endpoint_peer::endpoint_peer(engine& loop, unique_fd socket, parameters known,
                             std::shared_ptr<endpoint_hub> hub)
    : name_{std::move(known.name)},
      hub_{std::move(hub)},
      wire_{loop,
            std::move(socket),
            name_.empty() ? std::move(known.address) : name_ + " (" + known.address + ")",
            known.receive_window,
            known.send_window,
            *this} {
  if (hub_) ++hub_->peers;
}

endpoint_peer::~endpoint_peer() {
  // One that is withdrawn may let the next one out, which then ends: the list is no longer theirs.
  const auto unsent = std::exchange(refusals_, {});
  for (const auto& [number, frame] : unsent) wire_.withdraw(*frame);
  if (!hub_) return;
  if (!cause_) --hub_->peers;
  if (listed_messages_) hub_->messages.remove(*this);
  if (listed_requests_) hub_->requests.remove(*this);
}

// What comes in.

const char* endpoint_peer::on_frame(received_frame&& frame) noexcept {
  if (const char* fault = fault_of_tensor(frame)) return fault;
  if (endpoints::window_of(frame.header.kind) == window_kind::replies)
    return on_answer(std::move(frame)), nullptr;
  try {
    const bool request = frame.header.kind == frame_kind::request;
    (request ? requests_ : messages_).push_back(std::move(frame));
    (request ? requests_changed_ : messages_changed_).set();
    if (hub_) list_again(request ? hub_->requests : hub_->messages);
  } catch (const std::bad_alloc&) {
    return "more messages than this process has memory for";
  }
  return nullptr;
}

void endpoint_peer::on_answer(received_frame&& frame) noexcept {
  const auto found = calls_.find(frame.header.id);
  if (found == calls_.end() || found->second->answer) {
    // Its caller has stopped waiting.
    wire_.give_back(window_kind::replies, cost_of(frame.header));
    return;
  }
  found->second->answer = std::move(frame);
  found->second->changed.set();
}

void endpoint_peer::on_end(const error& why) noexcept {
  if (!cause_) {
    cause_ = why ? why : error{errc::invalid_state, "the connection to " + whom() + " was closed here"};
    if (hub_) --hub_->peers;
  }
  over_.set();
  wake_all();
  forget_if_drained();
}

void endpoint_peer::wake_all() noexcept {
  messages_changed_.set();
  requests_changed_.set();
  for (const auto& [id, call] : calls_) call->changed.set();
}

void endpoint_peer::forget_if_drained() noexcept {
  if (hub_ && cause_ && messages_.empty() && requests_.empty()) hub_->forget(*this);
}

void endpoint_peer::turn_taken(const peer_turns& which) noexcept {
  (&which == &hub_->requests ? listed_requests_ : listed_messages_) = false;
}

void endpoint_peer::list_again(peer_turns& which) {
  const bool request = &which == &hub_->requests;
  bool& listed = request ? listed_requests_ : listed_messages_;
  if (listed || (request ? requests_ : messages_).empty()) return;
  which.add(*this);
  listed = true;
}

peer_message endpoint_peer::message_from(received_frame&& frame) {
  peer_message m;
  m.tag_ = frame.header.tag;
  m.type_ = static_cast<dtype>(frame.header.element);
  m.shape_ = std::move(frame.shape);
  m.head_ = std::move(frame.head);
  m.values_ = std::move(frame.values);
  m.size_ = static_cast<std::size_t>(frame.header.size);
  return m;
}

peer_message endpoint_peer::take_message() {
  received_frame frame = std::move(messages_.front());
  messages_.pop_front();
  wire_.give_back(window_kind::messages, cost_of(frame.header));
  const share self = shared_from_this();
  forget_if_drained();
  return message_from(std::move(frame));
}

peer_request endpoint_peer::take_request() {
  received_frame frame = std::move(requests_.front());
  requests_.pop_front();
  const std::uint64_t id = frame.header.id;
  const std::uint64_t cost = cost_of(frame.header);
  share self = shared_from_this();
  forget_if_drained();
  return {std::move(self), message_from(std::move(frame)), id, cost};
}

// Operations.

void endpoint_peer::require_open() const {
  if (cause_) throw failure{cause_};
}

task<void> endpoint_peer::wait(share self, event& on, const char* doing) {
  try {
    event::waiter waiting = on.wait();
    co_await waiting;
  } catch (const failure& f) {
    throw failure{error{f.why().code(), std::string{doing} + self->whom()}};
  }
}

task<void> endpoint_peer::transmit(share self, payload what, frame_header header, const char* doing) {
  self->require_open();
  if (error fault = what.fault()) throw failure{std::move(fault)};
  header.element = static_cast<std::uint8_t>(what.type());
  header.dimensions = static_cast<std::uint8_t>(what.shape().size());
  header.head = static_cast<std::uint16_t>(what.head().size());
  header.size = what.bytes().size();
  if (cost_of(header) > self->wire_.largest())
    throw failure{error{errc::invalid_argument, "a message of " + std::to_string(header.size) +
                                                    " bytes for " + self->whom() + ", which takes up to " +
                                                    std::to_string(self->largest_message()) +
                                                    "; raise its byte_limit, or send it in pieces"}};
  pending_send frame{*self};
  frame.header = header;
  std::ranges::copy(what.shape(), frame.shape.begin());
  frame.head = what.head().data();
  frame.values = what.bytes().data();
  self->wire_.send(frame);
  task<void> sending = wait(self, frame.done, doing);
  co_await std::move(sending);
  if (frame.why) throw failure{frame.why};
}

task<void> endpoint_peer::send(share self, std::uint64_t tag, payload what) {
  task<void> sending = transmit(std::move(self), what, {.kind = frame_kind::message, .tag = tag}, "send to ");
  co_await std::move(sending);
}

task<peer_message> endpoint_peer::recv(share self, std::optional<dtype> wanted) {
  while (self->messages_.empty()) {
    self->require_open();
    self->messages_changed_.reset();
    task<void> coming = wait(self, self->messages_changed_, "recv from ");
    co_await std::move(coming);
  }
  const auto type = static_cast<dtype>(self->messages_.front().header.element);
  if (wanted && type != *wanted)
    throw failure{error{errc::mismatch, "the next message of " + self->whom() + ", tag " +
                                            std::to_string(self->messages_.front().header.tag) +
                                            ", has elements of type " + std::string{name_of(type)} +
                                            ", asked for was " + std::string{name_of(*wanted)} +
                                            "; recv() takes any"}};
  co_return self->take_message();
}

task<peer_message> endpoint_peer::call(share self, std::uint64_t tag, payload what) {
  self->require_open();
  pending_call pending{*self, ++self->last_id_};
  task<void> asking =
      transmit(self, what, {.kind = frame_kind::request, .tag = tag, .id = pending.id}, "call to ");
  co_await std::move(asking);
  while (!pending.answer) {
    self->require_open();
    pending.changed.reset();
    task<void> coming = wait(self, pending.changed, "call to ");
    co_await std::move(coming);
  }
  received_frame answer = *std::move(pending.answer);
  pending.answer.reset();
  self->wire_.give_back(window_kind::replies, cost_of(answer.header));
  if (answer.header.kind == frame_kind::refusal) throw failure{refused_with(answer, self->whom())};
  co_return message_from(std::move(answer));
}

task<peer_request> endpoint_peer::next_request(share self) {
  while (self->requests_.empty()) {
    self->require_open();
    self->requests_changed_.reset();
    task<void> coming = wait(self, self->requests_changed_, "next request of ");
    co_await std::move(coming);
  }
  co_return self->take_request();
}

task<void> endpoint_peer::reply(share self, payload answer, std::uint64_t tag, std::uint64_t id,
                                std::uint64_t cost) {
  task<void> sending = transmit(self, answer, {.kind = frame_kind::reply, .tag = tag, .id = id}, "reply to ");
  task<result<void>> guarded = as_result(std::move(sending));
  auto sent = co_await std::move(guarded);
  if (sent) {
    self->wire_.give_back(window_kind::messages, cost);
    co_return;
  }
  // Whoever asked must not wait for an answer that does not come. Where the answer is half sent already, the
  // refusal behind it finds nobody.
  self->refuse(id, cost, sent.error().code(), "the answer could not be sent");
  throw failure{std::move(sent).error()};
}

void endpoint_peer::refuse(std::uint64_t id, std::uint64_t cost, errc code, std::string_view why) noexcept {
  if (cause_ || wire_.over() || wire_.leaving()) return;
  try {
    const std::uint64_t number = ++last_refusal_;
    auto made = std::make_unique<refusal>(*this, number, why, cost);
    refusal& frame = *made;
    frame.header = {.kind = frame_kind::refusal,
                    .head = static_cast<std::uint16_t>(frame.why.size()),
                    .code = static_cast<std::uint16_t>(code),
                    .id = id};
    frame.head = reinterpret_cast<const std::byte*>(frame.why.data());
    refusals_.emplace(number, std::move(made));
    wire_.send(frame);
  } catch (const std::bad_alloc&) {
    wire_.end(error{errc::out_of_memory, "no room for a refusal to " + whom()}, errc::out_of_memory);
  }
}

void endpoint_peer::drop_refusal(refusal& done) noexcept {
  const std::uint64_t cost = done.cost;
  refusals_.erase(done.number);
  wire_.give_back(window_kind::messages, cost);
}

task<error> endpoint_peer::ended(share self) {
  while (!self->cause_) {
    task<void> coming = wait(self, self->over_, "waiting for the end of ");
    co_await std::move(coming);
  }
  co_return self->cause_;
}

task<void> endpoint_peer::close(share self) {
  if (!self->cause_) {
    self->cause_ = error{errc::invalid_state, "the connection to " + self->whom() + " was closed here"};
    if (self->hub_) --self->hub_->peers;
    self->wake_all();
  }
  self->wire_.leave();
  task<void> heard = with_timeout(farewell, wait(self, self->over_, "goodbye to "));
  task<result<void>> guarded = as_result(std::move(heard));
  auto outcome = co_await std::move(guarded);
  self->wire_.end(error{}, errc::ok);
  if (!outcome && outcome.error() != errc::timed_out) throw failure{std::move(outcome).error()};
}

}  // namespace chorale
