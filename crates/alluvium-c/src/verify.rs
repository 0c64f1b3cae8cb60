//! Verification: reads and checks every file of an open database.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use alluvium::VerifyReport;

use crate::borrow::{given, invalid};
use crate::call::{call, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::error_list::alluvium_error_list;
use crate::sized::{self, SizedStruct};
use crate::value::alluvium_slice;

/// Options of alluvium_verify.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_verify_options {
    /// sizeof(alluvium_verify_options).
    pub struct_size: usize,
    /// Called after each read with the number of bytes read, on the calling thread, with no lock
    /// held. It may wait to limit the rate, and may call the database. It must neither throw nor
    /// jump out. NULL: no pauses.
    pub pause: Option<unsafe extern "C" fn(context: *mut c_void, bytes: u64)>,
    /// Passed to pause.
    pub pause_context: *mut c_void,
}

/// Counts of the data read and the damage found by alluvium_verify.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_verify_counts {
    /// sizeof(alluvium_verify_counts), set by the caller.
    pub struct_size: usize,
    /// Number of damages found, including those that are not listed. A file may have several.
    pub damage_count: u64,
    /// Number of inserts of existing keys, including those that are not listed. Inserts that a
    /// compaction has already turned into puts are harmless and are not found.
    pub wrong_insert_count: u64,
    /// Number of groups (key ranges of a keyspace that are compacted as a whole) whose inserts were
    /// not checked, because one of their tables is damaged.
    pub groups_skipped: u64,
    /// Number of table files read.
    pub tables: u64,
    /// Number of entries in them.
    pub entries: u64,
    /// Number of log segments read.
    pub log_segments: u64,
    /// Number of records in them.
    pub log_records: u64,
    /// Bytes of the table files and log segments read. Each file counts once, although tables are
    /// read twice.
    pub bytes: u64,
}

/// An insert of a key that existed, although alluvium_insert promises that it does not. When the
/// key is deleted later, the older value may come back.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_wrong_insert {
    /// sizeof(alluvium_wrong_insert), set by the caller.
    pub struct_size: usize,
    /// The keyspace's name. Lives as long as the report.
    pub keyspace: alluvium_slice,
    /// The key. Lives as long as the report.
    pub key: alluvium_slice,
    /// The commit that inserted it.
    pub seqno: u64,
    /// The commit that wrote the older value; 0 if it is so old that its number is no longer kept.
    pub older_seqno: u64,
}

// SAFETY: repr(C), the size first, a pointer and a nullable function; the assertion below finds
// padding.
unsafe impl SizedStruct for alluvium_verify_options {}
// SAFETY: as above, integers only.
unsafe impl SizedStruct for alluvium_verify_counts {}
// SAFETY: as above, integers and slices, which have no padding.
unsafe impl SizedStruct for alluvium_wrong_insert {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_verify_options>() == 3 * 8
        && size_of::<alluvium_verify_counts>() == 9 * 8
        && size_of::<alluvium_wrong_insert>() == 8 + 2 * 16 + 2 * 8
);

/// Report of alluvium_verify. It does not keep the database open.
pub struct alluvium_verify_report {
    report: VerifyReport,
    damages: alluvium_error_list,
}

/// Reads and checks every file of an open database, and continues after damage; the report lists
/// the damage. Commits and reads continue meanwhile. Takes two passes over all tables, in the
/// calling thread. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_verify(
    database: Option<&alluvium_database>,
    options: *const alluvium_verify_options,
    report: Option<&mut MaybeUninit<*mut alluvium_verify_report>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    make(error, report, || {
        let options = options?;
        let report = given(database, "database")?.0.verify_with(&mut |bytes| {
            if let Some(pause) = options.pause {
                // SAFETY: the contract: the function accepts this context as long as the call
                // lasts.
                unsafe { pause(options.pause_context, bytes) };
            }
        })?;
        Ok(alluvium_verify_report {
            damages: alluvium_error_list::new(&report.damages),
            report,
        })
    })
}

/// Returns true if nothing was found; false for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_verify_report_is_clean(report: Option<&alluvium_verify_report>) -> bool {
    report.is_some_and(|report| report.report.is_clean())
}

/// Fills `counts`; its struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_verify_report_counts(
    report: Option<&alluvium_verify_report>,
    counts: *mut alluvium_verify_counts,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let report = &given(report, "report")?.report;
        let filled = alluvium_verify_counts {
            struct_size: size_of::<alluvium_verify_counts>(),
            damage_count: report.damage_count,
            wrong_insert_count: report.wrong_insert_count,
            groups_skipped: report.groups_skipped,
            tables: report.tables,
            entries: report.entries,
            log_segments: report.log_segments,
            log_records: report.log_records,
            bytes: report.bytes,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(counts, &filled) }
    })
}

/// Returns the first thousand damages, each with its file; the list is part of the report. NULL for
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_verify_report_damages(
    report: Option<&alluvium_verify_report>,
) -> Option<&alluvium_error_list> {
    report.map(|report| &report.damages)
}

/// Returns the number of listed wrong inserts, at most a thousand; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_verify_report_wrong_inserts(
    report: Option<&alluvium_verify_report>,
) -> usize {
    report.map_or(0, |report| report.report.wrong_inserts.len())
}

/// Fills `wrong` (its struct_size must be set) with the wrong insert at this index, counted from
/// 0. ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_verify_report_wrong_insert(
    report: Option<&alluvium_verify_report>,
    index: usize,
    wrong: *mut alluvium_wrong_insert,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let found = given(report, "report")?.report.wrong_inserts.get(index);
        let found = found.ok_or_else(|| invalid("the report lists less wrong inserts"))?;
        let filled = alluvium_wrong_insert {
            struct_size: size_of::<alluvium_wrong_insert>(),
            keyspace: alluvium_slice::lent(found.keyspace.as_bytes()),
            key: alluvium_slice::lent(&found.key),
            seqno: found.seqno,
            older_seqno: found.older_seqno,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(wrong, &filled) }
    })
}

/// Frees a report with its lists.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_verify_report_free(report: Option<Box<alluvium_verify_report>>) {
    quietly(|| drop(report));
}
