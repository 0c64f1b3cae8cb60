//! Ingests and bulk loads: many rows written straight into tables, past the log and the memtables,
//! as one commit.

use std::mem::MaybeUninit;

use alluvium::{BulkLoad, BulkLoadOptions, Duplicates, Ingest, Ingested, Keyspace, Result};

use crate::borrow::{given, invalid};
use crate::call::{call, make, quietly};
use crate::database::alluvium_database;
use crate::error::{alluvium_code, alluvium_error};
use crate::options::bytes_number;
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

/// Options of alluvium_ingest_begin. NULL or zeros: rows in key order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct alluvium_ingest_options {
    /// sizeof(alluvium_ingest_options).
    pub struct_size: usize,
    /// Approximate bytes of rows that a bulk load keeps in memory before it writes them to
    /// temporary files. Part of the database's memory budget, and at most half of it; at least 64
    /// KiB. 0: 64 MiB. For any_order only.
    pub memory_bytes: u64,
    /// Not 0: a bulk load, which takes rows in any order and sorts them.
    pub any_order: u32,
    /// An alluvium_duplicates, for any_order only: rows in order have no duplicates.
    pub duplicates: u32,
}

/// Result of alluvium_ingest_finish.
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
unsafe impl SizedStruct for alluvium_ingest_options {}
// SAFETY: as above.
unsafe impl SizedStruct for alluvium_ingested {}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    size_of::<alluvium_ingest_options>() == 2 * 8 + 2 * 4
        && size_of::<alluvium_ingested>() == 6 * 8
);

impl alluvium_ingest_options {
    /// Returns the options of a bulk load; `None` for rows in key order.
    fn to_engine(self) -> Result<Option<BulkLoadOptions>> {
        if self.any_order == 0 {
            if self.memory_bytes != 0 || self.duplicates != 0 {
                return Err(invalid(
                    "memory_bytes and duplicates are for any_order only",
                ));
            }
            return Ok(None);
        }
        let memory = bytes_number(self.memory_bytes, "memory_bytes")?;
        Ok(Some(BulkLoadOptions {
            memory_bytes: memory.unwrap_or(BulkLoadOptions::default().memory_bytes),
            duplicates: match self.duplicates {
                n if n == alluvium_duplicates::LastWins as u32 => Duplicates::LastWins,
                n if n == alluvium_duplicates::Refuse as u32 => Duplicates::Refuse,
                n => return Err(invalid(format!("duplicates is {n}, it must be 0 or 1"))),
            },
        }))
    }
}

/// An unfinished ingest, with rows added by alluvium_ingest_writer. For one thread at a time; keeps
/// the database open. Freeing it before alluvium_ingest_finish leaves no trace of its rows.
pub struct alluvium_ingest(Option<Rows>);

/// Rows of an unfinished ingest.
pub(crate) enum Rows {
    InOrder(Ingest),
    AnyOrder(BulkLoad),
}

impl alluvium_ingest {
    pub(crate) fn running(&mut self) -> Result<&mut Rows> {
        self.0
            .as_mut()
            .ok_or_else(|| invalid("the ingest is finished"))
    }
}

impl Rows {
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Rows::InOrder(ingest) => ingest.put(keyspace, key, value),
            Rows::AnyOrder(load) => load.put(keyspace, key, value),
        }
    }

    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        match self {
            Rows::InOrder(ingest) => ingest.put_until(keyspace, key, value, until_ms),
            Rows::AnyOrder(load) => load.put_until(keyspace, key, value, until_ms),
        }
    }

    fn finish(self) -> Result<Ingested> {
        match self {
            Rows::InOrder(ingest) => ingest.finish(),
            Rows::AnyOrder(load) => load.finish(),
        }
    }
}

/// Begins an ingest: many rows written straight into tables, all visible at once when it is
/// finished. Ingests take no row locks. `options` may be NULL: rows in key order. With any_order it
/// is a bulk load, which sorts rows within a memory limit and in temporary files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvium_ingest_begin(
    database: Option<&alluvium_database>,
    options: *const alluvium_ingest_options,
    ingest: Option<&mut MaybeUninit<*mut alluvium_ingest>>,
    error: Option<&mut MaybeUninit<*mut alluvium_error>>,
) -> alluvium_code {
    // SAFETY: the contract of the crate.
    let options = unsafe { sized::read(options) };
    make(error, ingest, || {
        let database = &given(database, "database")?.0;
        let begun = match options?.to_engine()? {
            None => Rows::InOrder(database.ingest()?),
            Some(options) => Rows::AnyOrder(database.bulk_load(options)?),
        };
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
        let filled = alluvium_ingested {
            struct_size: size_of::<alluvium_ingested>(),
            seqno: done.seqno,
            rows: done.rows,
            tables: done.tables,
            table_bytes: done.table_bytes,
            last_level_bytes: done.last_level_bytes,
        };
        // SAFETY: the contract of the crate.
        unsafe { sized::write_if_given(ingested, &filled) }
    })
}

/// Frees an ingest. If it is not finished, its rows are discarded.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_ingest_free(ingest: Option<Box<alluvium_ingest>>) {
    quietly(|| drop(ingest));
}
