#include "apps/out_of_memory.h"

#include "sightline/text/memory.h"

namespace sightline::apps {

void install_out_of_memory_handler(void (*handler)()) { set_text_out_of_memory_handler(handler); }

}  // namespace sightline::apps
