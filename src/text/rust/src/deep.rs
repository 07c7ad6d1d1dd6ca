//! A thread with a deep stack and a time limit. minijinja limits blocks and calls, but recurses along chains of
//! operators (`1+1+1+...`), which the length of the source bounds, and some lazy values cost more than their fuel.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::time::Duration;

/// A chain takes some 450 bytes of stack a link, at one link a byte of source: enough for 512 KiB of source.
const STACK_BYTES: usize = 256 << 20;
/// Far beyond what the other limits allow; what still runs then is left to itself.
const MAX_TIME: Duration = Duration::from_secs(3);

/// How the error of a thread that the system refused begins.
pub const NO_THREAD: &str = "cannot start a thread";

pub fn on_deep_stack<T: Send + 'static>(
    body: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
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
