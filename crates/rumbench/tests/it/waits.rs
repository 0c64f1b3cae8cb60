//! Waits for a state that another process reaches. No event tells of it, so tests look again and
//! again, with pauses: a test that spins takes the processor from the process for which it waits.

use std::process::Child;
use std::time::Duration;

/// Waits until `wanted` holds, or the process has ended by itself.
pub fn wait(child: &mut Child, wanted: &dyn Fn() -> bool) {
    while !wanted() && child.try_wait().unwrap().is_none() {
        pause();
    }
}

/// Pauses between two looks.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}
