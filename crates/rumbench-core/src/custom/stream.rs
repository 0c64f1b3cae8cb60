//! Requests of each client of a phase, in order: a function of the seed, the phase, the client, and
//! the rows that exist.

use std::fmt;

use super::definition::{Action, OperationDef, RunDef, Written};
use super::keys::Chooser;
use super::population::Population;
use crate::random::Random;

/// Key of the random generators.
const STREAM_KEY: u64 = 0x7374_7265;

/// The operations of one client of one phase.
#[derive(Debug)]
pub struct Stream {
    random: Random,
    /// Operations, each with the cumulative share up to and including it.
    operations: Vec<(f64, OperationDef, Chooser)>,
    request: Request,
}

/// One operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Index of the operation in the phase.
    pub operation: usize,
    /// Rows that are read, or the row that is written, or the first row of a scan. Empty for an
    /// insert.
    pub rows: Vec<u64>,
    /// Number of rows that the operation reads, scans or inserts.
    pub count: u64,
    /// Index of the only column that an update writes; `None` if it writes the whole row or
    /// nothing.
    pub column: Option<usize>,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} x{}", self.operation, self.rows, self.count)?;
        match self.column {
            Some(column) => write!(f, " column {column}"),
            None => Ok(()),
        }
    }
}

impl Stream {
    /// Creates a stream. `phase` is the index of the phase in the file; `client` is the client's
    /// number and the number of clients.
    pub fn new(
        (seed, phase): (u64, u64),
        run: &RunDef,
        client: (u64, u64),
        populations: &[Population],
    ) -> Stream {
        let mut sum = 0.0;
        let operations = run.operations.iter().map(|operation| {
            sum += operation.percent;
            let bounds = populations[operation.table].bounds();
            let chooser = Chooser::new(operation.keys, bounds, client);
            (sum / 100.0, operation.clone(), chooser)
        });
        Stream {
            operations: operations.collect(),
            random: Random::keyed(seed, &[STREAM_KEY, phase, client.0]),
            request: Request::default(),
        }
    }

    /// Returns the definition of an operation.
    pub fn operation(&self, place: usize) -> &OperationDef {
        &self.operations[place].1
    }

    /// Advances to the next operation.
    pub fn advance(&mut self, populations: &[Population]) -> &Request {
        let Stream {
            random,
            operations,
            request,
        } = self;
        let share = random.unit();
        let drawn = operations.iter().position(|(below, ..)| share < *below);
        // Percents may add up to slightly less than 100.
        request.operation = drawn.unwrap_or(operations.len() - 1);
        let (_, operation, chooser) = &mut operations[request.operation];
        let population = &populations[operation.table];
        let (min, max) = operation.rows;
        request.count = min + random.below(max - min + 1);
        request.rows.clear();
        request.column = None;
        let drawn = match &operation.action {
            Action::Insert => 0,
            Action::Read | Action::ReadMissing => request.count,
            _ => 1,
        };
        for _ in 0..drawn {
            let row = match operation.action {
                Action::Delete => chooser.draw_for_delete(random, population),
                _ => chooser.draw(random, population),
            };
            request.rows.push(row);
        }
        if let Action::Update(Written::One(of)) | Action::ReadModifyWrite(Written::One(of)) =
            &operation.action
        {
            request.column = Some(of[random.below(of.len() as u64) as usize]);
        }
        request
    }
}
