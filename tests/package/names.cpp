// A program's own names beside `using namespace convoy`: what is common elsewhere is not taken.
#include <algorithm>
#include <convoy/dlpack.hpp>
#include <convoy/network.hpp>
#include <convoy/pinned.hpp>
#include <convoy/plan.hpp>
#include <convoy/tune.hpp>
#include <string>

using namespace std;
using namespace convoy;

struct Named {
  string name, copy, clip, max;
};
int max(int a) {
  return a;
}
float clip(float v, float most) {
  return min(v, most);
}
string name(int i) {
  return to_string(i);
}
void copy(const string& from, string& to) {
  to = from;
}

int main() {
  string text;
  copy(name(max(2)) + to_string(static_cast<int>(clip(3, 1))), text);
  const Stage stage{
      .h = 8, .c = 1, .k = 1, .r = 3, .act = clip_to(0, 6), .pool = Pool{.window = 2}};
  const bool right = to_text(stage) == "n1h8w8c1k1r3+clip(0,6)+max2" &&
                     stage == parse_stage(to_text(stage)) && to_text(stage.dtype) == "f32" &&
                     to_text(StatusCode::busy) == "busy" && text == "21";

  // What a shared library must export for it.
  // Fields by name, the others as they are: no warning of -Wextra.
  const Plan plan(stage, PlanOptions{.threads = 2});
  Tensor x(stage.dtype, x_shape(stage)), y(stage.dtype, y_shape(stage));
  const bool refused = plan.run({.x = x, .y = y}).code() == StatusCode::no_weights;
  const DLPackOwner lent = to_dlpack(x.view());
  const DLPackVersionedOwner versioned = to_dlpack_versioned(x.view());
  const DLPackVersionedOwner input = to_dlpack_read_only(x);
  return !right || !refused || from_dlpack(*lent).data != x.data<float>() ||
         from_dlpack(*versioned).data != x.data<float>() ||
         from_dlpack_read_only(*input).data != x.data<float>();
}
