//! Counts cache lines that change their owner in the operations of Alluvium, with sixteen clients
//! on as many imagined cores: what would limit it on a machine with many cores.
//!
//! ```text
//! make lines                    # writes docs/results/scalability.md
//! ```
//!
//! The build is instrumented: each access to memory calls a model of the caches (`model.c`). The
//! clients take turns after each operation, so that every line which two of them share moves as
//! often as it can. An operation runs alone, so no client ever waits for a lock: the model counts
//! lines, not queues. Functions of the C libraries and of Rust's precompiled library are not
//! instrumented; generic ones are, where the engine uses them.
//!
//! The last measurement has a planted shared counter. If the model does not see it, or does not
//! tell a leader's work for its group from a client's own, the program fails.
#![expect(clippy::print_stdout, reason = "the page is this program's result")]
#![expect(clippy::print_stderr, reason = "progress goes to stderr")]

mod model;
mod page;
mod scenes;

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use model::COUNTED;
use scenes::{Measured, Operation};

/// Operations of each client before the counting begins.
const WARM_UP: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::new();
    for scene in scenes::ALL {
        eprintln!("{}", scene.name);
        let dir = tempfile::tempdir()?;
        let operations = (scene.prepare)(dir.path())?;
        let lines = measure(operations);
        measured.push(Measured { scene, lines });
    }
    let (planted, measured) = measured.split_last().ok_or("no scenes")?;
    let moves = page::moves(&page::of_driver(&planted.lines));
    if moves.writes < 0.9 {
        return Err(format!(
            "the planted shared counter moved {} times per operation instead of once: \
             this build is not instrumented, use `make lines`",
            moves.writes
        )
        .into());
    }
    measured.iter().try_for_each(check_leaders)?;
    print!("{}", page::page(measured, moves));
    Ok(())
}

/// Refuses numbers in which a leader's work is not told from a client's own. In turns, each commit
/// leads a group of its own, and takes the lines of the row's lock itself.
fn check_leaders(own: &Measured) -> Result<(), String> {
    let of_clients = page::by_client(&own.lines).writes;
    let of_leaders = page::moves(&own.lines).writes - of_clients;
    let is_right = match own.scene.leads {
        true => of_leaders > 1.0 && of_clients > 0.5,
        false => of_leaders == 0.0,
    };
    let name = own.scene.name;
    is_right.then_some(()).ok_or(format!(
        "{name}: leaders took {of_leaders} lines per operation and clients {of_clients}: \
         stacks do not show who leads"
    ))
}

/// Order to a client to run one operation, counted or not.
type Order = bool;

/// Runs the operations of all clients in turns and returns the counted lines.
fn measure(operations: Vec<Operation>) -> Vec<model::Line> {
    let clients: Vec<(Sender<Order>, Receiver<()>, thread::JoinHandle<()>)> = operations
        .into_iter()
        .enumerate()
        .map(|(number, operation)| {
            let (order, orders) = channel();
            let (done, dones) = channel();
            let client = thread::spawn(move || client(number, operation, &orders, &done));
            (order, dones, client)
        })
        .collect();
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            model::begin();
        }
        for (order, done, _) in &clients {
            order.send(round >= WARM_UP).expect("the client runs");
            done.recv().expect("the client runs");
        }
    }
    let lines = model::end();
    for (order, _, client) in clients {
        drop(order);
        client.join().expect("a client failed");
    }
    lines
}

fn client(number: usize, make: Operation, orders: &Receiver<Order>, done: &Sender<()>) {
    let mut operation = make();
    while let Ok(counts) = orders.recv() {
        model::as_client(number, counts, &mut operation);
        done.send(()).expect("the driver waits");
    }
}
