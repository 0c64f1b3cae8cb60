//! Steps of a trial: its phases and settles, in order, and the final check of the engine's
//! contents.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use rumbench_core::trial::{Phase, PhaseEnd, Step, Workload};

use super::phase::{self, PhaseContext};
use super::plan::Turnover;
use super::protocol::{Emitter, Event};
use super::turnover::{Counter, Next};
use crate::measure::compressed;
use crate::store::result::{PhaseResult, StoredBytes};

/// Steps of a trial; they continue at the same position when the database is reopened.
pub struct Steps<'a> {
    /// Workload that produces the steps.
    pub workload: Box<dyn Workload>,
    /// Number of settles so far.
    settles: u32,
    /// True if the last step was a settle.
    settled: bool,
    /// Compression ratio of the workload's rows, if it offers a sample.
    ratio: Option<f64>,
    turnover: Option<&'a Turnover>,
    /// Counter of the steps that age the database; None before the first of them.
    counter: Option<Counter<'a>>,
}

impl<'a> Steps<'a> {
    /// Returns the steps of `workload`, which must not have begun.
    ///
    /// # Errors
    /// When its sample cannot be compressed.
    pub fn new(workload: Box<dyn Workload>, turnover: Option<&'a Turnover>) -> Result<Steps<'a>> {
        let ratio = compressed::ratio(&workload.sample(compressed::SAMPLE_BYTES))?;
        Ok(Steps {
            workload,
            settles: 0,
            settled: false,
            ratio,
            turnover,
            counter: None,
        })
    }

    /// Runs steps until the next one that reopens the database, or to the end of the trial. Returns
    /// true if steps are left.
    ///
    /// # Errors
    /// When a step cannot begin, the engine cannot settle, or it holds wrong data.
    pub fn run(&mut self, context: &PhaseContext<'_>) -> Result<bool> {
        let (engine, emitter) = (context.engine, context.emitter);
        while let Some(step) = self.workload.next_step(engine)? {
            let step = match step {
                Step::Reopen => return Ok(true),
                Step::Settle => {
                    if self.settle(context)?.is_none() {
                        return Ok(false);
                    }
                    continue;
                }
                Step::Phase(phase) => phase,
            };
            let ages = self
                .turnover
                .filter(|asked| Counter::counts(asked, &step.name));
            // The size of the database must be known before the first step that ages it.
            if let Some(asked) = ages.filter(|_| self.counter.is_none()) {
                let Some(start) = self.settle(context)? else {
                    return Ok(false);
                };
                self.counter = Some(Counter::new(asked, data_bytes(&start)));
            }
            let Some(result) = self.phase(context, step)? else {
                return Ok(false);
            };
            if let Some(counter) = self.counter.as_mut().filter(|_| ages.is_some())
                && is_old(counter, &result, emitter)
            {
                break;
            }
        }
        if !self.settled {
            self.settle(context)?;
        }
        emitter.emit(&Event::Measured);
        let sentence = self.workload.verify(engine)?;
        emitter.emit(&Event::Verified { sentence });
        Ok(false)
    }

    /// Settles once more. Returns the result of that phase if the trial continues.
    fn settle(&mut self, context: &PhaseContext<'_>) -> Result<Option<PhaseResult>> {
        self.settled = true;
        self.settles += 1;
        let name = match self.settles {
            1 => "settle".to_string(),
            n => format!("settle#{n}"),
        };
        context.emitter.emit(&Event::PhaseStarted {
            name: name.clone(),
            seconds: None,
            operations: None,
        });
        let at_least = self.workload.settle_at_least();
        let result = phase::settle(context, name, at_least).context("cannot settle")?;
        let result = PhaseResult {
            stored_bytes: self.stored(),
            ..result
        };
        context.emitter.emit(&Event::Phase {
            result: Box::new(result.clone()),
        });
        Ok(Some(result).filter(|result| !interrupted(context, &result.name)))
    }

    /// Returns the size of the rows in the database, if the workload counts them and a sample gives
    /// their compression ratio.
    fn stored(&self) -> Option<StoredBytes> {
        let raw = self.workload.stored_bytes()?;
        Some(StoredBytes {
            raw,
            compressed: (raw as f64 * self.ratio?).round() as u64,
        })
    }

    fn phase(&mut self, context: &PhaseContext<'_>, phase: Phase) -> Result<Option<PhaseResult>> {
        self.settled = false;
        let own = self.workload.pace(&phase.name);
        let paced = PhaseContext {
            rate: context.rate.or(own),
            ..*context
        };
        run_phase(&paced, phase)
    }
}

fn data_bytes(phase: &PhaseResult) -> u64 {
    phase.size_bytes.map_or(0, |size| size.data)
}

/// Returns true if this step is the last that ages the database.
fn is_old(counter: &mut Counter<'_>, step: &PhaseResult, emitter: &Emitter) -> bool {
    match counter.add(step) {
        Next::Step => false,
        Next::Enough => true,
        Next::GiveUp(why) => {
            emitter.emit(&Event::Mark {
                mark: format!("turnover-unmet ({why})"),
            });
            true
        }
    }
}

/// Runs one phase. Returns its result if the trial continues.
fn run_phase(context: &PhaseContext<'_>, phase: Phase) -> Result<Option<PhaseResult>> {
    let emitter = context.emitter;
    announce_phase(&phase, emitter);
    let must_be_whole = matches!(phase.end, PhaseEnd::Work);
    let outcome = phase::run(context, phase);
    let result = outcome.result;
    // After a load with gaps, later phases would only report the missing rows as errors of the
    // engine.
    let failed = result.errors > 0 && (must_be_whole || result.operations == 0);
    emitter.emit(&Event::Phase {
        result: Box::new(result.clone()),
    });
    for contradiction in outcome.contradictions {
        emitter.emit(&Event::Mark {
            mark: format!("contradiction ({}: {contradiction})", result.name),
        });
    }
    if let Some(wrong) = outcome.wrong {
        emitter.emit(&Event::Mark {
            mark: format!("wrong-answer ({wrong})"),
        });
        return Ok(None);
    }
    if failed {
        bail!(
            "{} operations of phase {} failed, the first with: {}",
            result.errors,
            result.name,
            result.error_samples.first().cloned().unwrap_or_default()
        );
    }
    Ok(Some(result).filter(|result| !interrupted(context, &result.name)))
}

/// Returns true if the user interrupts the trial, and marks the trial then.
fn interrupted(context: &PhaseContext<'_>, phase: &str) -> bool {
    let interrupted = context.interrupted.load(Ordering::Relaxed);
    if interrupted {
        context.emitter.emit(&Event::Mark {
            mark: format!("interrupted (in {phase})"),
        });
    }
    interrupted
}

fn announce_phase(phase: &Phase, emitter: &Emitter) {
    let led = phase.background.as_ref().and_then(|clients| clients.leads);
    let (seconds, operations) = match phase.end {
        PhaseEnd::Work => (led, None),
        PhaseEnd::Seconds(seconds) => (Some(seconds), None),
        PhaseEnd::Operations(operations) => (None, Some(operations)),
    };
    emitter.emit(&Event::PhaseStarted {
        name: phase.name.clone(),
        seconds,
        operations,
    });
}
