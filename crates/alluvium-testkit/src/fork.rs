//! Forked children for tests of the use of inherited handles in a copy of the whole process.
//!
//! The child of a process with several threads has only the forking thread. It may call the code
//! under test, and exits without running anything that belongs to the test program.

/// Forks, runs `child` in the child process and returns its exit code, the result of `child`. A
/// child that hangs is killed after a minute.
///
/// # Panics
///
/// If the child dies by a signal, or the system refuses to fork.
pub fn in_child(child: impl FnOnce() -> i32) -> i32 {
    wait(start(child))
}

/// Child process that lives until this is dropped, with a copy of every descriptor that the test
/// has open.
pub struct Holder {
    child: libc::pid_t,
    end: std::io::PipeWriter,
}

impl Holder {
    /// Forks such a child.
    ///
    /// # Panics
    ///
    /// If the system refuses to fork.
    pub fn start() -> Holder {
        let (mut until, end) = std::io::pipe().expect("a pipe");
        let child = start(move || {
            let _ = std::io::Read::read(&mut until, &mut [0]);
            0
        });
        Holder { child, end }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = std::io::Write::write(&mut self.end, &[1]);
        wait(self.child);
    }
}

#[expect(unsafe_code, reason = "there is no safe way to fork")]
fn start(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child takes no lock that a thread of the parent may hold, except those of the
    // allocator and of the code under test. The C library keeps the allocator's locks consistent
    // across a fork. The child exits by `_exit`, so it runs none of the parent's code.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: neither call has preconditions.
            unsafe {
                libc::alarm(60);
                libc::_exit(child())
            }
        }
        pid => pid,
    }
}

#[expect(
    unsafe_code,
    reason = "the status of a child is asked for by a call of the system"
)]
fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the child belongs to this process and is waited for once, and `status` outlives the
    // call.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    libc::WEXITSTATUS(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_returns_its_code_and_a_holder_ends_with_its_drop() {
        assert_eq!(in_child(|| 7), 7);
        drop(Holder::start());
    }
}
