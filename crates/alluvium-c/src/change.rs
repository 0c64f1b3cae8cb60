//! One change of a stream, and what it lends: the operations of a commit, and the keyspaces of every other change.

use std::mem::MaybeUninit;

use alluvium::{Change, ChangeKind, ChangedKeyspace, KeyspaceOptions, Operation};

use crate::borrow::{given, invalid, lend};
use crate::call::{call, quietly};
use crate::error::{alluvium_code, alluvium_error};
use crate::options::{ALLUVIUM_NEVER, alluvium_keyspace_options};
use crate::sized::{self, SizedStruct};
use crate::value::alluvium_slice;

/// What a change is. Later versions may add kinds: a copy that meets one that it does not know must be made anew.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_change_kind {
    /// Something that this version has no kind for.
    Other = 0,
    /// A commit, with its operations. A transaction that was prepared comes once, where it was committed.
    Commit = 1,
    /// An ingest or a bulk load put rows into these keyspaces; the rows are not in the log, so read the keyspaces as of now,
    /// or copy them. Also there if it failed for want of space, or by a crash, just before its end; then nothing came.
    Ingest = 2,
    /// A keyspace was created, with these options.
    KeyspaceCreated = 3,
    /// A keyspace was dropped with everything in it.
    KeyspaceDropped = 4,
    /// A keyspace has other options, these; its rows are the same. Also there if the change failed as for an ingest.
    OptionsChanged = 5,
}

/// What an operation is. Later versions may add kinds: see alluvium_change_kind.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum alluvium_operation_kind {
    /// Something that this version has no kind for.
    Other = 0,
    /// A row was inserted or overwritten. key; value; until_ms.
    Put = 1,
    /// A row was deleted; there may have been none. key.
    Delete = 2,
    /// All rows of a range were deleted that were there before this commit. key: the first; end.
    DeleteRange = 3,
}

/// One write of a commit. What it points to lives as long as the change. The kind says which fields are set; the others
/// are 0 or NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_operation {
    /// sizeof(alluvium_operation), set by the caller.
    pub struct_size: usize,
    /// An alluvium_operation_kind.
    pub kind: u32,
    /// The keyspace's number, which no other keyspace of this database ever has.
    pub keyspace_id: u32,
    /// The keyspace's name.
    pub keyspace: alluvium_slice,
    /// The row's key; of a range its first key.
    pub key: alluvium_slice,
    /// The row's value, large ones too.
    pub value: alluvium_slice,
    /// The first key behind the range.
    pub end: alluvium_slice,
    /// From when on the row is absent, in milliseconds since 1970; ALLUVIUM_NEVER: it does not expire.
    pub until_ms: u64,
}

/// A keyspace as a stream of changes knows it; it may be dropped by now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_changed_keyspace {
    /// sizeof(alluvium_changed_keyspace), set by the caller.
    pub struct_size: usize,
    /// Its name, which another keyspace may have had before or may have later. Lives as long as the change.
    pub name: alluvium_slice,
    /// Its number, which no other keyspace of this database ever has.
    pub id: u32,
    /// 0.
    pub reserved: u32,
    /// How many rows came, for ALLUVIUM_CHANGE_KIND_INGEST.
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

/// One step in the history of a database. It stays readable until it is freed, also after its stream is freed and the
/// database is closed.
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

    /// A keyspace, and the rows that came there.
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
    /// What all operations have.
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

/// Its number in the commit order; 0 for NULL. Numbers rise; not every number is a change.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_seqno(change: Option<&alluvium_change>) -> u64 {
    change.map_or(0, |change| change.0.seqno)
}

/// What it is; ALLUVIUM_CHANGE_KIND_OTHER for NULL.
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

/// The id of the transaction, if it is the commit of one that was prepared; else NULL. Good as long as the change. `size`
/// may be NULL.
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

/// How many operations a commit has, of those that the stream shows; 0 for other kinds and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_operation_count(change: Option<&alluvium_change>) -> usize {
    change.map_or(0, |change| change.operations().len())
}

/// Fills `operation`, whose struct_size must be set, with the operation of this index, counted from 0. To be applied in
/// this order; range deletes come first, and touch nothing of this commit. ALLUVIUM_CODE_INVALID_ARGUMENT if there are not
/// so many.
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

/// How many keyspaces a change names that is no commit: an ingest one or more, the others one; 0 for commits, whose
/// operations name theirs, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_change_keyspace_count(change: Option<&alluvium_change>) -> usize {
    change.map_or(0, alluvium_change::keyspace_count)
}

/// Fills `keyspace`, whose struct_size must be set, with the keyspace of this index, counted from 0.
/// ALLUVIUM_CODE_INVALID_ARGUMENT if there are not so many.
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

/// Fills `options`, whose struct_size must be set, with those of the keyspace that was created or changed.
/// ALLUVIUM_CODE_INVALID_ARGUMENT for changes of other kinds.
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
