// What happens where the parts of text that are not C++ are refused memory.
#pragma once

namespace sightline {

/// Has `handler` called where pre-tokenizing, matching or a chat template is refused memory. Those parts
/// cannot throw std::bad_alloc: the handler must end the process, and allocate nothing. Without one, or when
/// it returns, the process is aborted. One for the process; any thread may call it.
void set_text_out_of_memory_handler(void (*handler)());

}  // namespace sightline
