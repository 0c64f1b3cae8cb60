//! A cursor that stays open during other operations, and its expected rows according to the model.

use std::ops::Bound;

use alluvium::{Cursor, Error};
use alluvium_testkit::model::{Direction, Model};
use alluvium_testkit::op::Move;

use crate::fixture::Row;

/// An open cursor and its expected position.
pub struct HeldCursor {
    pub cursor: Cursor,
    pub keyspace: String,
    /// The commit that it shows.
    pub at: u64,
    /// Key of its current row, `None` if it is on no row.
    pub key: Option<Vec<u8>>,
    /// True if it shows a commit from before the keyspace was created: the model may have another
    /// keyspace under that name.
    pub predates: bool,
    pub is_dropped: bool,
}

impl HeldCursor {
    /// Moves the cursor and compares its row with the model.
    pub fn go(&mut self, to: &Move, model: &Model) {
        let (moved, expected) = match to {
            Move::First => (
                self.cursor.seek_first(),
                self.first(model, Bound::Unbounded),
            ),
            Move::Last => (self.cursor.seek_last(), self.last(model, Bound::Unbounded)),
            Move::Seek(key) => (
                self.cursor.seek(key),
                self.first(model, Bound::Included(key)),
            ),
            Move::SeekBefore(key) => (
                self.cursor.seek_before(key),
                self.last(model, Bound::Excluded(key)),
            ),
            Move::Next => {
                let from = self.key.as_deref().map(Bound::Excluded);
                let expected = from.and_then(|from| self.first(model, from));
                (self.cursor.next(), expected)
            }
            Move::Prev => {
                let from = self.key.as_deref().map(Bound::Excluded);
                let expected = from.and_then(|from| self.last(model, from));
                (self.cursor.prev(), expected)
            }
        };
        let steps = matches!(to, Move::Next | Move::Prev);
        if self.is_dropped && !(steps && self.key.is_none()) {
            assert!(
                matches!(moved, Err(Error::KeyspaceDropped(_))),
                "{moved:?}, dropped"
            );
            self.key = None;
            return;
        }
        let found = moved.expect("move");
        let shown = found.then(|| (self.cursor.key().to_vec(), self.cursor.value().to_vec()));
        if !self.predates {
            let (name, at) = (&self.keyspace, self.at);
            assert_eq!(shown, expected, "{to} of a cursor on {name} at {at}");
        }
        self.key = shown.map(|(key, _)| key);
    }

    /// Checks that a step returns `Closed` after the database was closed.
    pub fn check_closed(mut self) {
        let stepped = self.cursor.next();
        if self.key.is_some() && !self.is_dropped {
            assert!(matches!(stepped, Err(Error::Closed)), "{stepped:?}")
        } else {
            drop(stepped)
        }
    }

    fn first(&self, model: &Model, from: Bound<&[u8]>) -> Option<Row> {
        self.one(model, (from, Bound::Unbounded), Direction::Forward)
    }

    fn last(&self, model: &Model, to: Bound<&[u8]>) -> Option<Row> {
        self.one(model, (Bound::Unbounded, to), Direction::Backward)
    }

    fn one(
        &self,
        model: &Model,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<Row> {
        let rows = model.scan(&self.keyspace, range, direction, 1, self.at);
        let mut rows = rows.into_iter();
        rows.next()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
    }
}
