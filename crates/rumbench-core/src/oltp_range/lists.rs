//! Update of a list of rows that a SQL server performs in one statement.

use super::columns::C;
use super::state::wrong;
use crate::error::Result;
use crate::tables::{TableId, TableQueries, Value};

/// Changes the rows of a list in one statement. The server returns the number of changed rows but
/// not their ids, so `there` assigns the changes to the rows that must exist before the others. The
/// answer is wrong if it exceeds the length of the list. It is also wrong if all answers can be
/// judged and fewer rows changed than must exist.
pub(super) fn set(
    queries: &mut dyn TableQueries,
    table: usize,
    ids: &[u64],
    text: &[u8],
    (expected, judges): (&[bool], bool),
    there: &mut Vec<bool>,
) -> Result<()> {
    let found = queries.set(TableId(table), ids, C, Value::Bytes(text))? as usize;
    let must = expected.iter().filter(|expected| **expected).count();
    if found > ids.len() || judges && found < must {
        return Err(wrong(format!(
            "{found} rows were changed for {} ids, of which {must} must be there",
            ids.len()
        )));
    }
    let (mut must, mut more) = (found.min(must), found.saturating_sub(must));
    there.extend(expected.iter().map(|expected| {
        let left = if *expected { &mut must } else { &mut more };
        let was_there = *left > 0;
        *left = left.saturating_sub(1);
        was_there
    }));
    Ok(())
}

#[cfg(test)]
mod unit {
    use std::ops::RangeInclusive;

    use super::*;
    use crate::tables::{Fold, RowBatch, Where};

    /// Server that reports this number of changed rows for every request.
    struct Changes(u64);

    impl TableQueries for Changes {
        fn column(
            &mut self,
            _: TableId,
            _: &[Value<'_>],
            _: usize,
            _: &mut dyn FnMut(Value<'_>),
        ) -> Result<()> {
            unreachable!("nothing is read")
        }

        fn fold(
            &mut self,
            _: TableId,
            _: RangeInclusive<u64>,
            _: usize,
            _: Fold,
            _: &mut dyn FnMut(Value<'_>),
        ) -> Result<()> {
            unreachable!("nothing is read")
        }

        fn select(
            &mut self,
            _: TableId,
            _: &'static [usize],
            _: usize,
            _: Where<'_>,
            _: &mut dyn FnMut(&[Value<'_>]),
        ) -> Result<()> {
            unreachable!("nothing is read")
        }

        fn set(&mut self, _: TableId, _: &[u64], _: usize, _: Value<'_>) -> Result<u64> {
            Ok(self.0)
        }

        fn insert_parsed(&mut self, _: TableId, _: &RowBatch) -> Result<()> {
            unreachable!("nothing is inserted")
        }
    }

    fn answers(changed: u64, expected: &[bool]) -> Result<Vec<bool>> {
        let mut there = Vec::new();
        let ids = vec![1; expected.len()];
        let asked = (expected, true);
        set(&mut Changes(changed), 0, &ids, b"c", asked, &mut there).map(|()| there)
    }

    #[test]
    fn changes_are_assigned_to_required_rows_first() {
        assert_eq!(answers(3, &[true, true, true]).unwrap(), [true; 3]);
        assert_eq!(
            answers(2, &[true, false, true]).unwrap(),
            [true, false, true]
        );
        assert_eq!(answers(3, &[true, false, true]).unwrap(), [true; 3]);
    }

    #[test]
    fn too_many_or_too_few_rows_are_wrong() {
        for changed in [1, 4] {
            let error = answers(changed, &[true, false, true]).unwrap_err();
            let expected = format!(
                "wrong answer: {changed} rows were changed for 3 ids, of which 2 must be there"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}
