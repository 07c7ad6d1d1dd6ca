//! The C border of ../../rust_api.h: every function catches panics, checks nothing else, and hands results to
//! a callback so that no memory changes owner. Texts that come in are UTF-8 (the caller has checked).

mod deep;
mod matcher;
mod memory;
mod namespaces;
mod regex;
mod template;

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

pub type BytesCallback = unsafe extern "C" fn(*mut c_void, *const u8, usize);
pub type RangesCallback = unsafe extern "C" fn(*mut c_void, *const u64, usize);

const OK: i32 = 0;
const REFUSED: i32 = 1;
const PANICKED: i32 = 2;
const NO_RESOURCE: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const u8,
    len: usize,
}

impl Text {
    /// # Safety
    /// `data` points to `len` bytes that live as long as the call.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.len)
        }
    }

    unsafe fn str<'a>(self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()).map_err(|e| format!("invalid UTF-8 at byte {}", e.valid_up_to()))
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    context: *mut c_void,
    call: BytesCallback,
}

impl Sink {
    fn send(self, text: &str) {
        unsafe { (self.call)(self.context, text.as_ptr(), text.len()) }
    }
}

/// Runs `body`; its error text or the panic's goes to `error`.
fn guarded(error: Sink, body: impl FnOnce() -> Result<(), String>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(text)) => {
            error.send(&text);
            if text.starts_with(deep::NO_THREAD) {
                NO_RESOURCE
            } else {
                REFUSED
            }
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown panic");
            error.send(text);
            PANICKED
        }
    }
}

/// Panics are reported as values; nothing may be printed.
fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

#[no_mangle]
pub extern "C" fn sl_on_out_of_memory(handler: memory::Handler) {
    memory::set_handler(handler);
}

/// # Safety
/// See rust_api.h; the same for all functions here.
#[no_mangle]
pub unsafe extern "C" fn sl_regex_new(pattern: Text, out: *mut *mut regex::Pattern, error: Sink) -> i32 {
    silence_panics();
    guarded(error, || {
        *out = Box::into_raw(Box::new(regex::Pattern::new(pattern.str()?)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_regex_free(pattern: *mut regex::Pattern) {
    if !pattern.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(pattern))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sl_regex_find(
    pattern: *const regex::Pattern,
    text: Text,
    context: *mut c_void,
    ranges: RangesCallback,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let found = (*pattern).find_all(text.str()?)?;
        ranges(context, found.as_ptr(), found.len() / 2);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_matcher_new(
    tokens: *const Text,
    num_tokens: usize,
    out: *mut *mut matcher::Matcher,
    error: Sink,
) -> i32 {
    silence_panics();
    guarded(error, || {
        let tokens: Vec<&[u8]> = (0..num_tokens).map(|i| (*tokens.add(i)).bytes()).collect();
        *out = Box::into_raw(Box::new(matcher::Matcher::new(&tokens)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_matcher_free(matcher: *mut matcher::Matcher) {
    if !matcher.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(matcher))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn sl_matcher_find(
    matcher: *const matcher::Matcher,
    text: Text,
    every_start: bool,
    context: *mut c_void,
    ranges: RangesCallback,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let found = (*matcher).find(text.bytes(), every_start);
        ranges(context, found.as_ptr(), found.len() / 3);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_normalize(text: Text, form: i32, result: Sink, error: Sink) -> i32 {
    silence_panics();
    guarded(error, || {
        use unicode_normalization::UnicodeNormalization;
        let text = text.str()?;
        let normalized: String = match form {
            0 => text.nfc().collect(),
            1 => text.nfd().collect(),
            2 => text.nfkc().collect(),
            3 => text.nfkd().collect(),
            _ => return Err(format!("unknown normalisation form {form}")),
        };
        result.send(&normalized);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_template_new(
    source: Text,
    max_steps: u64,
    max_output: usize,
    out: *mut *mut template::ChatTemplate,
    error: Sink,
) -> i32 {
    silence_panics();
    guarded(error, || {
        *out = Box::into_raw(Box::new(template::ChatTemplate::new(source.str()?, max_steps, max_output)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn sl_template_free(template: *mut template::ChatTemplate) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(template))));
    }
}

/// `messages`: role and content in turn, 2 * `num_messages` texts.
#[no_mangle]
pub unsafe extern "C" fn sl_template_render(
    template: *const template::ChatTemplate,
    messages: *const Text,
    num_messages: usize,
    add_generation_prompt: bool,
    bos: Text,
    eos: Text,
    result: Sink,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let mut pairs = Vec::with_capacity(num_messages);
        for i in 0..num_messages {
            pairs.push(((*messages.add(2 * i)).str()?, (*messages.add(2 * i + 1)).str()?));
        }
        let text = (*template).render(&pairs, add_generation_prompt, bos.str()?, eos.str()?)?;
        result.send(&text);
        Ok(())
    })
}
