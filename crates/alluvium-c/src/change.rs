//! One change of a stream, with the operations of a commit, or the keyspaces of any other change.

use std::mem::MaybeUninit;

use alluvium::{Change, ChangeKind, ChangedKeyspace, KeyspaceOptions, Operation};

use crate::borrow::{given, invalid, lend};
use crate::call::{call, quietly};
use crate::error::{alluvium_code, alluvium_error};
use crate::options::{ALLUVIUM_NEVER, alluvium_keyspace_options};
use crate::sized::{self, SizedStruct};
use crate::value::alluvium_slice;

/// Kind of a change. Later versions may add kinds: after an unknown kind, make a new copy of the
/// database.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_change_kind {
    /// A change for which this version has no kind.
    Other = 0,
    /// A commit, with its operations. A prepared transaction appears once, at its commit.
    Commit = 1,
    /// An ingest or a bulk load added rows to these keyspaces. The rows are not in the log: read
    /// the present state of the keyspaces, or copy them. Also reported if the ingest failed just
    /// before its end, for lack of space or by a crash; then it added no rows.
    Ingest = 2,
    /// A keyspace was created, with these options.
    KeyspaceCreated = 3,
    /// A keyspace was dropped with everything in it.
    KeyspaceDropped = 4,
    /// The options of a keyspace changed to these; its rows are the same. Also reported if setting
    /// the options failed after its log record was written; then nothing changed.
    OptionsChanged = 5,
}

/// Kind of an operation. Later versions may add kinds: see alluvium_change_kind.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_operation_kind {
    /// An operation for which this version has no kind.
    Other = 0,
    /// A row was inserted or overwritten. key; value; until_ms.
    Put = 1,
    /// A row was deleted; it may not have existed. key.
    Delete = 2,
    /// All rows of a range were deleted, as of before this commit. key: first key; end: end key,
    /// exclusive.
    DeleteRange = 3,
}

/// One write of a commit. Everything it points to lives as long as the change. The kind defines
/// which fields are set; the others are 0 or NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_operation {
    /// sizeof(alluvium_operation), set by the caller.
    pub struct_size: usize,
    /// An alluvium_operation_kind.
    pub kind: u32,
    /// The keyspace's number; no other keyspace of this database ever has it.
    pub keyspace_id: u32,
    /// The keyspace's name.
    pub keyspace: alluvium_slice,
    /// The row's key, or the first key of a range.
    pub key: alluvium_slice,
    /// The row's value, also if it is large.
    pub value: alluvium_slice,
    /// End of the range, exclusive.
    pub end: alluvium_slice,
    /// Time from which the row is absent, in milliseconds since 1970; ALLUVIUM_NEVER: it does not
    /// expire.
    pub until_ms: u64,
}

/// A keyspace in a stream of changes; it may have been dropped since.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_changed_keyspace {
    /// sizeof(alluvium_changed_keyspace), set by the caller.
    pub struct_size: usize,
    /// The keyspace's name; another keyspace may have it earlier or later. Lives as long as the
    /// change.
    pub name: alluvium_slice,
    /// The keyspace's number; no other keyspace of this database ever has it.
    pub id: u32,
    /// Always 0.
    pub reserved: u32,
    /// Number of added rows, for ALLUVIUM_CHANGE_KIND_INGEST.
    pub rows: u64,
}

// SAFETY: repr(C), the size first, integers and slices; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_operation {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_changed_keyspace {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_operation>() == 8 + 2 * 4 + 4 * 16 + 8
        && size_of::<alluvium_changed_keyspace>() == 8 + 16 + 2 * 4 + 8
);

/// One step in the history of a database. It stays readable until it is freed, also after its
/// stream is freed and the database is closed.
pub struct alluvium_change(pub(crate) Change);

impl alluvium_change {
    fn operations(&self) -> &[Operation] {
        match &self.0.kind {
            ChangeKind::Commit { operations, .. } => operations,
            _ => &[],
        }
    }

    fn keyspace_count(&self) -> usize {
        match &self.0.kind {
            ChangeKind::Ingest { keyspaces } => keyspaces.len(),
            ChangeKind::KeyspaceCreated { .. }
            | ChangeKind::KeyspaceDropped { .. }
            | ChangeKind::OptionsChanged { .. } => 1,
            _ => 0,
        }
    }

    /// Returns a keyspace and the number of rows added to it.
    fn keyspace(&self, index: usize) -> Option<(&ChangedKeyspace, u64)> {
        match &self.0.kind {
            ChangeKind::Ingest { keyspaces } => {
                let (keyspace, rows) = keyspaces.get(index)?;
                Some((keyspace, *rows))
            }
            ChangeKind::KeyspaceCreated { keyspace, .. }
            | ChangeKind::KeyspaceDropped { keyspace }
            | ChangeKind::OptionsChanged { keyspace, .. } => (index == 0).then_some((keyspace, 0)),
            _ => None,
        }
    }

    fn options(&self) -> Option<&KeyspaceOptions> {
        match &self.0.kind {
            ChangeKind::KeyspaceCreated { options, .. }
            | ChangeKind::OptionsChanged { options, .. } => Some(options),
            _ => None,
        }
    }
}

impl alluvium_operation {
    /// Returns an operation with the fields common to all kinds.
    fn new(
        kind: alluvium_operation_kind,
        keyspace: &ChangedKeyspace,
        key: &[u8],
    ) -> alluvium_operation {
        alluvium_operation {
            struct_size: size_of::<alluvium_operation>(),
            kind: kind as u32,
            keyspace_id: keyspace.id.0,
            keyspace: alluvium_slice::lent(keyspace.name.as_bytes()),
            key: alluvium_slice::lent(key),
            value: alluvium_slice::none(),
            end: alluvium_slice::none(),
            until_ms: 0,
        }
    }

    fn of(operation: &Operation) -> alluvium_operation {
        use alluvium_operation_kind as kind;
        match operation {
            Operation::Put {
                keyspace,
                key,
                value,
                until_ms,
            } => alluvium_operation {
                value: alluvium_slice::lent(value),
                until_ms: until_ms.unwrap_or(ALLUVIUM_NEVER),
                ..alluvium_operation::new(kind::Put, keyspace, key)
            },
            Operation::Delete { keyspace, key } => {
                alluvium_operation::new(kind::Delete, keyspace, key)
            }
            Operation::DeleteRange {
                keyspace,
                start,
                end,
            } => alluvium_operation {
                end: alluvium_slice::lent(end),
                ..alluvium_operation::new(kind::DeleteRange, keyspace, start)
            },
            _ => alluvium_operation {
                struct_size: size_of::<alluvium_operation>(),
                kind: kind::Other as u32,
                keyspace_id: 0,
                keyspace: alluvium_slice::none(),
                key: alluvium_slice::none(),
                value: alluvium_slice::none(),
                end: alluvium_slice::none(),
                until_ms: 0,
            },
        }
    }
}

/// Returns the change's number in the commit order; 0 for NULL. Numbers rise; not every number is a
/// change.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_seqno(change: Option<&alluvium_change>) -> u64 {
    change.map_or(0, |change| change.0.seqno)
}

/// Returns the change's kind; ALLUVIUM_CHANGE_KIND_OTHER for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_get_kind(
    change: Option<&alluvium_change>,
) -> alluvium_change_kind {
    match change.map(|change| &change.0.kind) {
        Some(ChangeKind::Commit { .. }) => alluvium_change_kind::Commit,
        Some(ChangeKind::Ingest { .. }) => alluvium_change_kind::Ingest,
        Some(ChangeKind::KeyspaceCreated { .. }) => alluvium_change_kind::KeyspaceCreated,
        Some(ChangeKind::KeyspaceDropped { .. }) => alluvium_change_kind::KeyspaceDropped,
        Some(ChangeKind::OptionsChanged { .. }) => alluvium_change_kind::OptionsChanged,
        _ => alluvium_change_kind::Other,
    }
}

/// Returns the id of the transaction if the change is the commit of a prepared transaction; else
/// NULL. Valid as long as the change. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_xid(
    change: Option<&alluvium_change>,
    size: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    let xid = match change.map(|change| &change.0.kind) {
        Some(ChangeKind::Commit { xid, .. }) => xid.as_deref(),
        _ => None,
    };
    lend(xid, size)
}

/// Returns the number of operations of a commit in the keyspaces that the stream was opened for; 0
/// for other kinds and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_operation_count(change: Option<&alluvium_change>) -> usize {
    change.map_or(0, |change| change.operations().len())
}

/// Fills `operation` (its struct_size must be set) with the operation at this index, counted from
/// 0. Apply operations in this order: range deletes come first and affect nothing of this commit.
/// ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_change_operation(
    change: Option<&alluvium_change>,
    index: usize,
    operation: *mut alluvium_operation,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(change, "change")?.operations().get(index);
        let found = found.ok_or_else(|| invalid("the change has less operations"))?;
        // SAFETY: the contract of the crate.
        unsafe { sized::write(operation, &alluvium_operation::of(found)) }
    })
}

/// Returns the number of keyspaces that a change names: one or more for an ingest, 0 for a commit
/// and for NULL, else one. The operations of a commit name their keyspaces.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_keyspace_count(change: Option<&alluvium_change>) -> usize {
    change.map_or(0, alluvium_change::keyspace_count)
}

/// Fills `keyspace` (its struct_size must be set) with the keyspace at this index, counted from
/// 0. ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_change_keyspace(
    change: Option<&alluvium_change>,
    index: usize,
    keyspace: *mut alluvium_changed_keyspace,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(change, "change")?.keyspace(index);
        let (found, rows) = found.ok_or_else(|| invalid("the change names less keyspaces"))?;
        let filled = alluvium_changed_keyspace {
            struct_size: size_of::<alluvium_changed_keyspace>(),
            name: alluvium_slice::lent(found.name.as_bytes()),
            id: found.id.0,
            reserved: 0,
            rows,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(keyspace, &filled) }
    })
}

/// Fills `options` (its struct_size must be set) with those of the keyspace that was created or
/// changed. ALLUVIUM_CODE_INVALID_ARGUMENT for changes of other kinds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_change_options(
    change: Option<&alluvium_change>,
    options: *mut alluvium_keyspace_options,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(change, "change")?.options();
        let found = found.ok_or_else(|| invalid("the change has no options"))?;
        // SAFETY: the contract of the crate.
        unsafe { sized::write(options, &alluvium_keyspace_options::of_engine(found)) }
    })
}

/// Frees a change.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_free(change: Option<Box<alluvium_change>>) {
    quietly(|| drop(change));
}
