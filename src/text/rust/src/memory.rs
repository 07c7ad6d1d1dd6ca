//! What a refused allocation does. Rust cannot unwind from one and would abort, a signal; a handler of the
//! program's own can end it with an exit code instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

pub type Handler = extern "C" fn();

static HANDLER: AtomicPtr<()> = AtomicPtr::new(null_mut());

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

pub fn set_handler(handler: Handler) {
    HANDLER.store(handler as *mut (), Ordering::Relaxed);
}

/// `memory`, after the handler has had its say where it is null.
fn checked(memory: *mut u8) -> *mut u8 {
    let handler = HANDLER.load(Ordering::Relaxed);
    if memory.is_null() && !handler.is_null() {
        // Stored by set_handler, and by nobody else.
        unsafe { transmute::<*mut (), Handler>(handler)() }
    }
    memory
}

unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        checked(System.alloc(layout))
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        System.dealloc(memory, layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        checked(System.alloc_zeroed(layout))
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        checked(System.realloc(memory, layout, size))
    }
}
