// Libraries that are refused memory in code which cannot throw call the program's handler.
#pragma once

namespace sightline::apps {

/// `handler` must not return. A core-only build has no such library.
void install_out_of_memory_handler(void (*handler)());

}  // namespace sightline::apps
