/* The C border of src/text/rust: what its lib.rs exports, and nothing else. Statuses: 0 done, 1 refused (the
 * text of the error goes to `error`), 2 a panic was caught, 3 the system refused a thread (likewise). Results
 * go to callbacks during the call; memory never changes owner. Handles may be used from several threads at
 * once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_regex sl_regex;
typedef struct sl_matcher sl_matcher;
typedef struct sl_template sl_template;

typedef struct sl_text {
  const uint8_t* data;
  size_t len;
} sl_text;

/* Called where an allocation is refused; if it returns, or there is none, the process is aborted. */
void sl_on_out_of_memory(void (*handler)(void));

typedef struct sl_sink {
  void* context;
  void (*call)(void* context, const uint8_t* data, size_t len);
} sl_sink;

/* `num` tuples of numbers, one after the other. */
typedef void (*sl_ranges)(void* context, const uint64_t* numbers, size_t num);

int32_t sl_regex_new(sl_text pattern, sl_regex** out, sl_sink error);
void sl_regex_free(sl_regex* regex);
/* Pairs (start, end) of all matches that are not empty; `text` is UTF-8. */
int32_t sl_regex_find(const sl_regex* regex, sl_text text, void* context, sl_ranges ranges, sl_sink error);

int32_t sl_matcher_new(const sl_text* tokens, size_t num_tokens, sl_matcher** out, sl_sink error);
void sl_matcher_free(sl_matcher* matcher);
/* Triples (start, end, index of the token): leftmost, then longest. `every_start`: overlapping ones too. */
int32_t sl_matcher_find(const sl_matcher* matcher, sl_text text, bool every_start, void* context,
                        sl_ranges ranges, sl_sink error);

/* form: 0 NFC, 1 NFD, 2 NFKC, 3 NFKD. */
int32_t sl_normalize(sl_text text, int32_t form, sl_sink result, sl_sink error);

int32_t sl_template_new(sl_text source, uint64_t max_steps, size_t max_output, sl_template** out,
                        sl_sink error);
void sl_template_free(sl_template* chat_template);
/* `messages`: role and content in turn, 2 * num_messages texts. */
int32_t sl_template_render(const sl_template* chat_template, const sl_text* messages, size_t num_messages,
                           bool add_generation_prompt, sl_text bos, sl_text eos, sl_sink result,
                           sl_sink error);

#ifdef __cplusplus
}
#endif
