// One visitor of a std::variant out of a function per alternative.
#pragma once

namespace convoy {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace convoy
