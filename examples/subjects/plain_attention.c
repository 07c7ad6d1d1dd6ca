/* An attention that `sightline check --library` can check, in plain C: causal, no rotation, grouped heads.
 *
 *   cc -O2 -shared -fPIC -Iinclude examples/subjects/plain_attention.c -o plain.so -lm
 *   sightline check --library ./plain.so
 *
 * With -DTILED query head h reads key head h mod num_kv_heads, and the check says so.
 */
#include <math.h>
#include <stddef.h>

#include "sightline/subject.h"

uint32_t sightline_subject_version(void) { return SIGHTLINE_SUBJECT_VERSION; }

uint64_t sightline_subject_takes(void) { return SIGHTLINE_TAKES_CHUNKS; }

int sightline_subject_answer(const sightline_call* call, sightline_answer* answer) {
  const int64_t q_len = call->q_tokens.length, kv_len = call->kv_tokens.length;
  const int heads = call->num_q_heads, kv_heads = call->num_kv_heads;
  const int dim = call->qk_head_dim, v_dim = call->v_head_dim;
  for (int64_t i = 0; i < q_len; ++i) {
    for (int h = 0; h < heads; ++h) {
#ifdef TILED
      const int g = h % kv_heads;
#else
      const int g = h / (heads / kv_heads);
#endif
      float* out = answer->out + (i * heads + h) * v_dim;
      for (int c = 0; c < v_dim; ++c) out[c] = 0;
      double total = 0;
      for (int64_t j = 0; j <= i + kv_len - q_len; ++j) {
        double dot = 0;
        for (int c = 0; c < dim; ++c) {
          dot += (double)call->q[(i * heads + h) * dim + c] * call->k[(j * kv_heads + g) * dim + c];
        }
        const double weight = exp(dot / sqrt(dim));
        total += weight;
        for (int c = 0; c < v_dim; ++c) out[c] += (float)(weight * call->v[(j * kv_heads + g) * v_dim + c]);
      }
      for (int c = 0; c < v_dim; ++c) out[c] = (float)(out[c] / total);
      answer->lse[i * heads + h] = (float)log(total);
    }
  }
  answer->weights = NULL;
  return 0;
}
