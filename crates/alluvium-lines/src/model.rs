//! The model of the caches in `model.c`, and the code that moved lines in it.

use std::collections::BTreeMap;
use std::ffi::c_void;

/// Number of clients, each on a core of its own. The model tells 31 apart.
pub const CLIENTS: usize = 16;
/// Number of counted operations of each client.
pub const COUNTED: usize = 500;

/// Line and code that accessed it in counted operations; the struct `place` of `model.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Place {
    line: usize,
    code: *const c_void,
    read_moves: u64,
    write_moves: u64,
    writes: bool,
    is_used: bool,
    /// Return addresses of the first move, innermost first, up to a null pointer; null if there was
    /// no move.
    stack: *const *const c_void,
}

unsafe extern "C" {
    safe fn lines_begin();
    safe fn lines_enter(number: i32, counts: bool);
    safe fn lines_leave();
    /// Returns `count` places that stay as they are until the next `lines_begin`.
    safe fn lines_end(count: &mut usize) -> *const Place;
}

/// Accesses of one function to one line, in all counted operations together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Reads and writes for which the line had to come from another core.
    pub read_moves: u64,
    pub write_moves: u64,
    /// True if the function also writes to the line.
    pub writes: bool,
}

/// Functions that accessed a line, by name; with [`LEADER`] at the end if the leader of a group of
/// commits did.
pub type Line = BTreeMap<String, Accesses>;

/// End of the name of a function that a leader ran for its group.
pub const LEADER: &str = " (leader)";

/// Part of the name of the function that is a leader's work for its group.
const LEADS: &str = "CommitPipeline::lead";

/// Forgets the owners of all lines, and tracks them from now on.
pub fn begin() {
    lines_begin();
}

/// Runs an operation as client `number`. Its accesses are counted if `counts`.
pub fn as_client(number: usize, counts: bool, operation: impl FnOnce()) {
    assert!(number < CLIENTS);
    lines_enter(number as i32, counts);
    operation();
    lines_leave();
}

/// Stops tracking and returns the lines that were accessed in counted operations.
pub fn end() -> Vec<Line> {
    let mut count = 0;
    let places = lines_end(&mut count);
    // SAFETY: there are `count` places, and only `begin` changes them, which no thread calls now.
    let places = unsafe { std::slice::from_raw_parts(places, count) };
    let mut names = BTreeMap::new();
    let mut leads = BTreeMap::new();
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    for place in places.iter().filter(|place| place.is_used) {
        let name = names
            .entry(place.code)
            .or_insert_with(|| name_of(place.code));
        let is_led = stack(place).any(|code| *leads.entry(code).or_insert_with(|| leads_at(code)));
        let name = format!("{name}{}", if is_led { LEADER } else { "" });
        let line = lines.entry(place.line).or_default();
        let accesses = line.entry(name).or_default();
        accesses.read_moves += place.read_moves;
        accesses.write_moves += place.write_moves;
        accesses.writes |= place.writes;
    }
    lines.into_values().collect()
}

/// Returns the return addresses at the first move, innermost first.
fn stack(place: &Place) -> impl Iterator<Item = *const c_void> {
    let stack = place.stack;
    // SAFETY: the array ends with a null pointer, where the iterator ends, and is never freed.
    let code = move |at: usize| unsafe { *stack.add(at) };
    let codes = (0..).map(code).take_while(|code| !code.is_null());
    (!stack.is_null()).then_some(codes).into_iter().flatten()
}

/// Returns true if the code, or a function into which it is inlined, is a leader's work.
fn leads_at(code: *const c_void) -> bool {
    let mut leads = false;
    resolve(code, |symbol| {
        leads |= symbol
            .name()
            .is_some_and(|name| short(&format!("{name:#}")).contains(LEADS));
    });
    leads
}

/// Calls `see` for the function that contains a call with this return address, and for those into
/// which it is inlined, innermost first.
fn resolve(code: *const c_void, see: impl FnMut(&backtrace::Symbol)) {
    // The return address is the one after the call.
    backtrace::resolve(code.cast::<u8>().wrapping_sub(1).cast_mut().cast(), see);
}

/// Returns the name of the innermost function of the engine that contains the code, and of the
/// library function that is inlined there, if any.
fn name_of(code: *const c_void) -> String {
    let mut outer = None;
    let mut inner: Option<String> = None;
    resolve(code, |symbol| {
        if outer.is_some() {
            return;
        }
        let name = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol
            .filename()
            .map(|file| file.to_string_lossy().into_owned());
        let is_own = file.is_some_and(|file| file.contains("crates/alluvium"));
        match name {
            Some(name) if is_own => outer = Some(short(&name)),
            Some(name) => inner = inner.take().or(Some(short(&name))),
            None => {}
        }
    });
    match (outer, inner) {
        (Some(outer), Some(inner))
            if inner.contains("arc_swap") || inner.contains("parking_lot") =>
        {
            format!("{outer} ({inner})")
        }
        (Some(outer), _) => outer,
        (None, Some(inner)) => inner,
        (None, None) => "unknown code".to_string(),
    }
}

/// Returns a function's path without generic arguments.
fn short(name: &str) -> String {
    let mut depth = 0;
    let mut short = String::new();
    // In `<A as B>::f` the type `A` says most.
    let name = name.strip_prefix('<').unwrap_or(name);
    for c in name.replace(" as ", "<as ").chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '>' => {}
            c if depth == 0 => short.push(c),
            _ => {}
        }
    }
    short.replace("::{{closure}}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn __tsan_read8(address: *mut c_void);
        fn __tsan_write8(address: *mut c_void);
    }

    #[test]
    fn a_write_takes_a_line_and_each_other_client_fetches_it_once() {
        #[repr(align(64))]
        struct Aligned([u64; 8]);
        let line = Aligned([0; 8]);
        let at: *mut c_void = std::ptr::from_ref(&line.0[3]).cast_mut().cast();
        begin();
        let access = |client: usize, writes: bool| {
            // This thread is all clients in turns.
            as_client(client, true, || {
                // SAFETY: the functions only look at the address.
                unsafe {
                    if writes {
                        __tsan_write8(at);
                    } else {
                        __tsan_read8(at);
                    }
                }
            });
        };
        access(0, true);
        for client in [0, 1, 2, 1, 3, 2] {
            access(client, false);
        }
        access(0, true);
        access(0, true);
        access(2, false);
        let found = end();
        assert_eq!(found.len(), 1, "{found:?}");
        let sum = |of: fn(&Accesses) -> u64| found[0].values().map(of).sum::<u64>();
        // Clients 1, 2 and 3 fetch the first write, client 2 the second one.
        assert_eq!(sum(|own| own.read_moves), 4);
        assert_eq!(sum(|own| own.write_moves), 1);
    }

    #[test]
    fn names_have_no_generic_arguments() {
        assert_eq!(short("a::b<c::d<e>>::f::{{closure}}"), "a::b::f");
        assert_eq!(short("<a::B<c> as d::E>::f"), "a::B::f");
        let lead = short("<alluvium::commit::pipeline::CommitPipeline>::lead::{closure#0}");
        assert!(lead.contains(LEADS), "{lead}");
    }
}
