//! Ingests and bulk loads: many rows written straight into tables, past the log and the memtables,
//! as one commit.

use std::mem::MaybeUninit;

use alluvium::{BulkLoad, BulkLoadOptions, Duplicates, Ingest, Ingested, Result};

use crate::borrow::{given, invalid};
use crate::call::{call, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::{bytes_number, check_reserved};
use crate::sized::{self, SizedStruct};

/// Treatment of rows with the same key in a bulk load.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum alluvium_duplicates {
    /// The last row put wins.
    LastWins = 0,
    /// The load fails with ALLUVIUM_CODE_DUPLICATE_KEY, at a put or at the end: for unique indexes.
    Refuse = 1,
}

/// Options of alluvium_bulk_load_begin.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_bulk_load_options {
    /// sizeof(alluvium_bulk_load_options).
    pub struct_size: usize,
    /// Approximate memory for rows before they are written to temporary files, in addition to the
    /// database's memory budget; at least 64 KiB. 0: 64 MiB.
    pub memory_bytes: u64,
    /// An alluvium_duplicates.
    pub duplicates: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Result of an ingest or a bulk load.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_ingested {
    /// sizeof(alluvium_ingested), set by the caller.
    pub struct_size: usize,
    /// Place of the rows in the commit order; that of the newest commit if there were no rows.
    pub seqno: u64,
    /// Number of installed rows.
    pub rows: u64,
    /// Number of table files.
    pub tables: u64,
    /// Bytes of these files.
    pub table_bytes: u64,
    /// Bytes of these that went straight into the last level.
    pub last_level_bytes: u64,
}

// SAFETY: repr(C), the size first, integers only; the assertions below find padding.
unsafe impl SizedStruct for alluvium_bulk_load_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_ingested {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_bulk_load_options>() == 2 * 8 + 2 * 4
        && size_of::<alluvium_ingested>() == 6 * 8
);

impl alluvium_bulk_load_options {
    fn to_engine(self) -> Result<BulkLoadOptions> {
        check_reserved(self.reserved)?;
        let memory = bytes_number(self.memory_bytes, "memory_bytes")?;
        Ok(BulkLoadOptions {
            memory_bytes: memory.unwrap_or(BulkLoadOptions::default().memory_bytes),
            duplicates: match self.duplicates {
                n if n == alluvium_duplicates::LastWins as u32 => Duplicates::LastWins,
                n if n == alluvium_duplicates::Refuse as u32 => Duplicates::Refuse,
                n => return Err(invalid(format!("duplicates is {n}, it must be 0 or 1"))),
            },
        })
    }
}

unsafe fn write_ingested(place: *mut alluvium_ingested, ingested: &Ingested) -> Result<()> {
    let filled = alluvium_ingested {
        struct_size: size_of::<alluvium_ingested>(),
        seqno: ingested.seqno,
        rows: ingested.rows,
        tables: ingested.tables,
        table_bytes: ingested.table_bytes,
        last_level_bytes: ingested.last_level_bytes,
    };
    // SAFETY: the contract, passed on.
    unsafe { sized::write_if_given(place, &filled) }
}

/// An unfinished ingest of rows in key order, added by alluvium_ingest_writer. For one thread at a
/// time; keeps the database open. Freeing it before alluvium_ingest_finish leaves no trace of its
/// rows.
pub struct alluvium_ingest(Option<Ingest>);

impl alluvium_ingest {
    pub(crate) fn running(&mut self) -> Result<&mut Ingest> {
        self.0
            .as_mut()
            .ok_or_else(|| invalid("the ingest is finished"))
    }
}

/// Begins an ingest: many rows written straight into tables, all visible at once when it is
/// finished. Ingests take no row locks.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_ingest_begin(
    database: Option<&alluvium_database>,
    ingest: Option<&mut MaybeUninit<*mut alluvium_ingest>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    make(error, ingest, || {
        let begun = given(database, "database")?.0.ingest()?;
        Ok(alluvium_ingest(Some(begun)))
    })
}

/// Installs all rows as one commit, durable when the call returns, at every durability level. After
/// an error nothing is visible. The ingest has ended after every result and must still be freed.
/// `ingested` may be NULL; its struct_size must be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_ingest_finish(
    ingest: Option<&mut alluvium_ingest>,
    ingested: *mut alluvium_ingested,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let place_given = unsafe { sized::check(ingested) };
    call(error, || {
        let ingest = given(ingest, "ingest")?;
        ingest.running()?;
        let ended = ingest.0.take();
        // Checked first: a failure after the rows were installed would report an error although the
        // rows exist.
        place_given?;
        let done = given(ended, "ingest")?.finish()?;
        // SAFETY: the contract of the crate.
        unsafe { write_ingested(ingested, &done) }
    })
}

/// Frees an ingest. If it is not finished, its rows are discarded.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_ingest_free(ingest: Option<Box<alluvium_ingest>>) {
    quietly(|| drop(ingest));
}

/// An unfinished load of rows in any order, added by alluvium_bulk_load_writer. For one thread at a
/// time; keeps the database open. Freeing it before alluvium_bulk_load_finish leaves no trace of
/// its rows.
pub struct alluvium_bulk_load(Option<BulkLoad>);

impl alluvium_bulk_load {
    pub(crate) fn running(&mut self) -> Result<&mut BulkLoad> {
        self.0
            .as_mut()
            .ok_or_else(|| invalid("the bulk load is finished"))
    }
}

/// Begins a bulk load: like alluvium_ingest_begin, for rows in any order. It sorts them within a
/// memory limit and in temporary files. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_bulk_load_begin(
    database: Option<&alluvium_database>,
    options: *const alluvium_bulk_load_options,
    load: Option<&mut MaybeUninit<*mut alluvium_bulk_load>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    make(error, load, || {
        let database = &given(database, "database")?.0;
        let begun = database.bulk_load(options?.to_engine()?)?;
        Ok(alluvium_bulk_load(Some(begun)))
    })
}

/// Sorts the remaining rows and installs all rows as one commit: see alluvium_ingest_finish.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_bulk_load_finish(
    load: Option<&mut alluvium_bulk_load>,
    ingested: *mut alluvium_ingested,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let place_given = unsafe { sized::check(ingested) };
    call(error, || {
        let load = given(load, "load")?;
        load.running()?;
        let ended = load.0.take();
        // As in alluvium_ingest_finish.
        place_given?;
        let done = given(ended, "load")?.finish()?;
        // SAFETY: the contract of the crate.
        unsafe { write_ingested(ingested, &done) }
    })
}

/// Frees a bulk load. If it is not finished, its rows are discarded.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_bulk_load_free(load: Option<Box<alluvium_bulk_load>>) {
    quietly(|| drop(load));
}
