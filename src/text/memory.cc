#include "sightline/text/memory.h"

#include "text/rust_api.h"

namespace sightline {

void set_text_out_of_memory_handler(void (*handler)()) { sl_on_out_of_memory(handler); }

}  // namespace sightline
