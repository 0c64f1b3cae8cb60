//! Rows of a database at one commit, and the writes that change them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Id of a keyspace and a key.
pub type Row = (u32, Vec<u8>);

/// Value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of the value.
    pub value: Arc<[u8]>,
    /// Time in milliseconds at which the row expires; `None`: never.
    pub until_ms: Option<u64>,
}

/// Rows of all keyspaces that ever existed, expired or not.
pub type State = BTreeMap<Row, Stored>;

/// Effect of a commit on rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes or removes one row.
    Row(Row, Option<Stored>),
    /// Removes a range.
    Range(u32, Vec<u8>, Vec<u8>),
}

impl Stored {
    /// Returns a row that never expires.
    pub fn lasting(value: &[u8]) -> Stored {
        let value = Arc::from(value);
        Stored {
            value,
            until_ms: None,
        }
    }

    /// Returns whether the row is visible to a reader at this time.
    pub fn is_there(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| now_ms < until)
    }
}

/// Applies the writes of a commit.
pub fn apply(state: &mut State, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Row(row, Some(value)) => {
                state.insert(row.clone(), value.clone());
            }
            Write::Row(row, None) => {
                state.remove(row);
            }
            Write::Range(keyspace, start, end) => {
                let inside = |(id, key): &Row| id == keyspace && start <= key && key < end;
                state.retain(|row, _| !inside(row));
            }
        }
    }
}
