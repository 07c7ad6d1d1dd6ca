// The extension module: the core of Sightline as numpy users meet it. The package's Python files add shapes
// and defaults; every rule is in C++.
#include "bind.h"

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of the package sightline.";
  sightline::python::bind_rope(m);
  sightline::python::bind_spec(m);
  sightline::python::bind_attention(m);
  sightline::python::bind_attention_backward(m);
  sightline::python::bind_reference(m);
  sightline::python::bind_kv_cache(m);
  sightline::python::bind_checker(m);
  sightline::python::bind_check(m);
  sightline::python::bind_batch(m);
  sightline::python::bind_loss(m);
  sightline::python::bind_report(m);
}
