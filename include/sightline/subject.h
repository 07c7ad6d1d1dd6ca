/* A subject as a shared library: what to export so that `sightline check --library FILE` can check it. Plain
 * C, no other header needed. The library runs in a process of its own: a crash or a hang is reported, not
 * suffered.
 *
 * Arrays are row-major. A library exports
 *   uint32_t sightline_subject_version(void)                      SIGHTLINE_SUBJECT_VERSION, nothing else
 *   uint64_t sightline_subject_takes(void)                        SIGHTLINE_TAKES_... bits
 *   int      sightline_subject_answer(const sightline_call*, sightline_answer*)   0, or any other for failure
 * and, if it keeps keys between calls (SIGHTLINE_HOLDS_CACHE),
 *   void     sightline_subject_begin(void)                        forget the sequence
 */
#ifndef SIGHTLINE_SUBJECT_H_
#define SIGHTLINE_SUBJECT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIGHTLINE_SUBJECT_VERSION 1

#define SIGHTLINE_TAKES_POSITIONS 1u /* positions other than 0, 1, 2, ... */
#define SIGHTLINE_TAKES_SEGMENTS 2u  /* documents, spans, flags */
#define SIGHTLINE_TAKES_PADDING 4u   /* tokens that are not valid */
#define SIGHTLINE_TAKES_GRADIENTS 8u /* d_out; answers with d_q, d_k, d_v */
#define SIGHTLINE_TAKES_CHUNKS 16u   /* fewer queries than keys */
#define SIGHTLINE_HOLDS_CACHE 32u    /* keeps keys between calls */

/* Tokens of one side of a call; every array has `length` entries. */
typedef struct sightline_tokens {
  int64_t length;
  const int64_t* pos;
  const int64_t* rope_pos;
  const int32_t* segment;
  const int64_t* segment_start;
  const int32_t* span;
  const uint32_t* flags;
  const uint8_t* valid;
} sightline_tokens;

typedef struct sightline_call {
  uint32_t size; /* sizeof(sightline_call) of the caller: a later version only adds members */
  int32_t num_q_heads, num_kv_heads, qk_head_dim, v_head_dim;
  int32_t is_self_attention; /* the queries are the newest tokens; a cache appends the last q.length keys */
  sightline_tokens q_tokens, kv_tokens;
  const float* q;         /* [q_len, num_q_heads, qk_head_dim], before rotation */
  const float* k;         /* [kv_len, num_kv_heads, qk_head_dim], before rotation; every key so far */
  const float* v;         /* [kv_len, num_kv_heads, v_head_dim] */
  const float* bias;      /* [num_q_heads, q_len, kv_len] or null */
  const float* d_out;     /* [q_len, num_q_heads, v_head_dim] or null */
  const uint8_t* visible; /* [q_len, kv_len]: the declared mask, for whoever takes an array */
  const char* spec;       /* the declaration as JSON */
} sightline_call;

/* Buffers to fill; they hold NaN before. Setting a member other than out to null says: not given. */
typedef struct sightline_answer {
  uint32_t size;  /* sizeof(sightline_answer) of the caller */
  float* out;     /* [q_len, num_q_heads, v_head_dim] */
  float* lse;     /* [q_len, num_q_heads] */
  float* weights; /* [num_q_heads, q_len, kv_len] */
  float* d_q;     /* as q; null without d_out */
  float* d_k;
  float* d_v;
} sightline_answer;

uint32_t sightline_subject_version(void);
uint64_t sightline_subject_takes(void);
void sightline_subject_begin(void);
int sightline_subject_answer(const sightline_call* call, sightline_answer* answer);

#ifdef __cplusplus
}
#endif

#endif
