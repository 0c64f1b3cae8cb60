//! What each client of a phase asks, in order: a function of the seed, the phase, the client, and of which rows are there.

use std::fmt;

use super::definition::{Action, OperationDef, RunDef, Written};
use super::keys::Chooser;
use super::population::Population;
use crate::random::Random;

/// What generators are keyed with.
const STREAM_KEY: u64 = 0x7374_7265;

/// The operations of one client of one phase.
#[derive(Debug)]
pub struct Stream {
    random: Random,
    /// With the percents of those before it and its own.
    operations: Vec<(f64, OperationDef, Chooser)>,
    request: Request,
}

/// One operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Place among the operations of the phase.
    pub operation: usize,
    /// Rows that are read, or the one that is written or where a scan begins. None of an insert.
    pub rows: Vec<u64>,
    /// Rows of an insert or a scan.
    pub count: u64,
    /// The column that is written alone.
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
    /// `phase` is the place of the phase in the file, and `client` the client's number and how many there are.
    pub fn new(
        (seed, phase): (u64, u64),
        run: &RunDef,
        client: (u64, u64),
        populations: &[Population],
    ) -> Stream {
        let mut sum = 0.0;
        let operations = run.operations.iter().map(|operation| {
            sum += operation.percent;
            let (_, rows) = populations[operation.table].bounds();
            let chooser = Chooser::new(operation.keys, rows, client);
            (sum / 100.0, operation.clone(), chooser)
        });
        Stream {
            operations: operations.collect(),
            random: Random::keyed(seed, &[STREAM_KEY, phase, client.0]),
            request: Request::default(),
        }
    }

    /// The definition of an operation.
    pub fn operation(&self, place: usize) -> &OperationDef {
        &self.operations[place].1
    }

    /// Goes on to the next operation.
    pub fn advance(&mut self, populations: &[Population]) -> &Request {
        let Stream {
            random,
            operations,
            request,
        } = self;
        let share = random.unit();
        let drawn = operations.iter().position(|(below, ..)| share < *below);
        // Percents may add up to a little less than 100.
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
