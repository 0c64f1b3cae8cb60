//! Repair: copies the readable part of a damaged database into a new one.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use alluvium::RepairReport;

use crate::borrow::{bytes, given, invalid};
use crate::call::{call, make, quietly};
use crate::database::path_of;
use crate::error::{alluvium_code, alluvium_error};
use crate::error_list::alluvium_error_list;
use crate::sized::{self, SizedStruct};
use crate::value::{alluvium_list, alluvium_slice};

/// Numbers of the items that alluvium_repair saved or lost.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_repair_counts {
    /// sizeof(alluvium_repair_counts), set by the caller.
    pub struct_size: usize,
    /// Number of unreadable places.
    pub damages: u64,
    /// Key ranges in which a table has lost entries.
    pub lost: u64,
    /// Tables copied unchanged.
    pub tables_copied: u64,
    /// Tables saved in part: their good blocks.
    pub tables_salvaged: u64,
    /// Tables without any saved block.
    pub tables_lost: u64,
    /// Commits replayed from the log.
    pub commits_replayed: u64,
    /// Operations in the log on keyspaces that are missing in the readable part of the manifest.
    pub unknown_operations: u64,
    /// Table files that the readable part of the manifest does not name.
    pub unnamed_tables: u64,
}

/// Bounds of the keys of lost entries. Everything it points to lives as long as the report.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_lost_range {
    /// sizeof(alluvium_lost_range), set by the caller.
    pub struct_size: usize,
    /// The keyspace's name.
    pub keyspace: alluvium_slice,
    /// The name of the table's file.
    pub table: alluvium_slice,
    /// Lower bound of the lost keys, inclusive.
    pub from: alluvium_slice,
    /// Upper bound of the lost keys, inclusive.
    pub to: alluvium_slice,
}

// SAFETY: repr(C), the size first, integers only; the assertion below finds padding.
unsafe impl SizedStruct for alluvium_repair_counts {}
// SAFETY: as above, with slices, which have no padding.
unsafe impl SizedStruct for alluvium_lost_range {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_repair_counts>() == 9 * 8 && size_of::<alluvium_lost_range>() == 8 + 4 * 16
);

/// Report of alluvium_repair.
pub struct alluvium_repair_report {
    report: RepairReport,
    damages: alluvium_error_list,
    unnamed_tables: alluvium_list,
}

/// Saves the readable part of the database in `source` as a new database at `target`, which must
/// not exist; its parent must exist. `source` must not be open for writing, and is not changed.
/// Durable when the call returns. The report lists the losses: where rows of a newer table are
/// lost, older versions of their keys may become visible again. After an error nothing is left at
/// the target. ALLUVIUM_CODE_CORRUPTION if no manifest can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_repair(
    source: *const c_char,
    source_size: usize,
    target: *const c_char,
    target_size: usize,
    report: Option<&mut MaybeUninit<*mut alluvium_repair_report>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let (source, target) = unsafe { (bytes(source, source_size), bytes(target, target_size)) };
    make(error, report, || {
        let report = alluvium::repair(path_of(source?)?, path_of(target?)?)?;
        let names = report.unnamed_tables.iter().cloned();
        Ok(alluvium_repair_report {
            damages: alluvium_error_list::new(&report.damages),
            unnamed_tables: alluvium_list(names.map(String::into_bytes).collect()),
            report,
        })
    })
}

/// Returns true if all known contents of the database were saved; false for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_repair_report_is_complete(
    report: Option<&alluvium_repair_report>,
) -> bool {
    report.is_some_and(|report| report.report.is_complete())
}

/// Fills `counts`; its struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_repair_report_counts(
    report: Option<&alluvium_repair_report>,
    counts: *mut alluvium_repair_counts,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let report = &given(report, "report")?.report;
        let filled = alluvium_repair_counts {
            struct_size: size_of::<alluvium_repair_counts>(),
            damages: report.damages.len() as u64,
            lost: report.lost.len() as u64,
            tables_copied: report.tables_copied,
            tables_salvaged: report.tables_salvaged,
            tables_lost: report.tables_lost,
            commits_replayed: report.commits_replayed,
            unknown_operations: report.unknown_operations,
            unnamed_tables: report.unnamed_tables.len() as u64,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(counts, &filled) }
    })
}

/// Returns the list of everything that could not be read, by file and offset; it is part of the
/// report. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_repair_report_damages(
    report: Option<&alluvium_repair_report>,
) -> Option<&alluvium_error_list> {
    report.map(|report| &report.damages)
}

/// Fills `range` (its struct_size must be set) with the lost range at this index, counted from 0.
/// ALLUVIUM_CODE_INVALID_ARGUMENT if the index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_repair_report_lost(
    report: Option<&alluvium_repair_report>,
    index: usize,
    range: *mut alluvium_lost_range,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    call(error, || {
        let lost = given(report, "report")?.report.lost.get(index);
        let lost = lost.ok_or_else(|| invalid("the report has less lost ranges"))?;
        let filled = alluvium_lost_range {
            struct_size: size_of::<alluvium_lost_range>(),
            keyspace: alluvium_slice::lent(lost.keyspace.as_bytes()),
            table: alluvium_slice::lent(lost.table.as_bytes()),
            from: alluvium_slice::lent(&lost.from),
            to: alluvium_slice::lent(&lost.to),
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write(range, &filled) }
    })
}

/// Returns the names of table files that the readable part of the manifest does not name; the list
/// is part of the report. They usually come from an interrupted compaction. If edits of the
/// manifest are lost, they may hold rows, and these were not saved. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_repair_report_unnamed_tables(
    report: Option<&alluvium_repair_report>,
) -> Option<&alluvium_list> {
    report.map(|report| &report.unnamed_tables)
}

/// Frees a report with its lists.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_repair_report_free(report: Option<Box<alluvium_repair_report>>) {
    quietly(|| drop(report));
}
