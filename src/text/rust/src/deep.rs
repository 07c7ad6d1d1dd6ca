//! A thread with a deep stack and a time limit. minijinja limits blocks and calls, but recurses along chains of
//! operators (`1+1+1+...`), which the length of the source bounds, and through values nested by a loop
//! (`x = [x]`), which the steps bound; some lazy values cost more than their fuel.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::time::Duration;

/// Stack that one level of recursion may take. The most seen is 480 bytes where the compiler optimises (printing
/// nested maps) and 2.3 KiB where it does not (a chain of calls). The system gives what is touched.
const STACK_BYTES_PER_LEVEL: usize = if cfg!(debug_assertions) { 4096 } else { 1024 };
/// Levels for the engine itself: blocks and calls, whose depth the template limits, of many frames each.
const BASE_LEVELS: usize = 16 << 10;
/// Far beyond what the other limits allow; what still runs then is left to itself.
const MAX_TIME: Duration = Duration::from_secs(3);

/// How the error of a thread that the system refused begins.
pub const NO_THREAD: &str = "cannot start a thread";

/// Runs `body`, which recurses at most `levels` deep, on a thread of its own.
pub fn on_deep_stack<T: Send + 'static>(
    levels: usize,
    body: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(levels.saturating_add(BASE_LEVELS).saturating_mul(STACK_BYTES_PER_LEVEL))
        .spawn(move || {
            let _ = sender.send(catch_unwind(AssertUnwindSafe(body)));
        })
        .map_err(|e| format!("{NO_THREAD}: {e}"))?;
    match receiver.recv_timeout(MAX_TIME) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(format!("it takes longer than {} s", MAX_TIME.as_secs())),
    }
}
