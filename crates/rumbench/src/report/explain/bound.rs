//! Bottleneck of an engine's throughput in a phase, taken from the median trial among those that
//! agree on it.

use super::finding::{Figure, Finding, Kind, Scene};
use super::usage::{Part, Resource, Usage};
use crate::report::throughput::{counts_rows, per_item, rate};
use crate::store::result::{CpuPerOp, PhaseResult, TrialResult};
use crate::text::number;
use crate::text::percent;

/// Smallest share that is mentioned in addition to the largest.
const WORTH: f64 = 0.25;

/// A trial's phase and the split of its time.
struct Judged<'a> {
    phase: &'a PhaseResult,
    usage: Usage,
}

/// Returns the sentence about the bottleneck. `None` if no trial has enough measurements.
pub fn finding(scene: &Scene<'_>, engine: &str, phase: &str) -> Option<Finding> {
    let judged: Vec<Judged<'_>> = scene
        .trials(engine)
        .filter_map(|trial| judge(scene, trial, phase))
        .collect();
    let resource = most_frequent(&judged)?;
    let mut agreeing: Vec<&Judged<'_>> = judged
        .iter()
        .filter(|found| found.usage.first().map(|part| part.resource) == Some(resource))
        .collect();
    agreeing.sort_by(|a, b| a.usage.thread_us.total_cmp(&b.usage.thread_us));
    let typical = agreeing.get(agreeing.len() / 2)?;
    let mut figures = Vec::new();
    let mut text = format!("was bounded by {}", name(resource));
    let first = typical.usage.first()?;
    text += &detail(typical, first, &mut figures);
    let others = typical.usage.parts.iter().skip(1);
    for part in others.filter(|part| part.share >= WORTH && !is_absolute(resource)) {
        text += &format!("; also by {}", name(part.resource));
        text += &detail(typical, *part, &mut figures);
    }
    if agreeing.len() < judged.len() {
        let (some, all) = (agreeing.len(), judged.len());
        text += &format!("; so in {some} of {all} repetitions");
    }
    let brief = format!("was bounded by {}", name(resource));
    let finding = scene.finding(Kind::Bound, engine, phase, text + ".", figures);
    Some(finding.in_brief(brief))
}

/// Returns true if the resource rules out any other bottleneck: the phase reached its requested
/// rate.
fn is_absolute(resource: Resource) -> bool {
    resource == Resource::Rate
}

fn judge<'a>(scene: &Scene<'_>, trial: &'a TrialResult, phase: &str) -> Option<Judged<'a>> {
    let phase = trial.phases.iter().find(|found| found.name == phase)?;
    let usage = Usage::of(scene.suite, trial, phase)?;
    usage.first()?;
    Some(Judged { phase, usage })
}

/// Returns the bottleneck of most trials; of equally frequent ones the first.
fn most_frequent(judged: &[Judged<'_>]) -> Option<Resource> {
    let firsts = || judged.iter().filter_map(|found| found.usage.first());
    let votes = |resource| firsts().filter(|part| part.resource == resource).count();
    let best = firsts().map(|part| votes(part.resource)).max()?;
    let mut firsts = firsts().map(|part| part.resource);
    firsts.find(|resource| votes(*resource) == best)
}

fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Rate => "the rate asked for",
        Resource::Stalls => "stalls",
        Resource::Client => "the laboratory's own CPU",
        Resource::Cpu => "CPU",
        Resource::Machine => "CPU that others had",
        Resource::Reads => "device reads",
        Resource::Writes => "device writes",
        Resource::Throttle => "the engine's own brakes",
        Resource::Locks => "waiting, as for locks",
    }
}

impl Judged<'_> {
    fn item(&self) -> &'static str {
        if counts_rows(&self.phase.name) {
            "row"
        } else {
            "op"
        }
    }

    fn cpu(&self) -> CpuPerOp {
        self.phase.cpu_us_per_op.unwrap_or_default()
    }

    /// Formats a cost per operation or row.
    fn per(&self, value: Option<f64>) -> String {
        number(per_item(self.phase, value))
    }
}

/// Formats the amounts, beginning with a colon or a comma, and adds their figures.
fn detail(of: &Judged<'_>, part: Part, figures: &mut Vec<Figure>) -> String {
    let (phase, usage, item) = (of.phase, &of.usage, of.item());
    let share = percent(part.share);
    let mut push = |metric: &str, value: Option<f64>| figures.push(Figure::new(metric, value));
    match part.resource {
        Resource::Client | Resource::Cpu | Resource::Machine => processor(of, part, figures),
        Resource::Rate => {
            push("rate", phase.rate);
            push("ops_per_s", phase.ops_per_s);
            format!(", {} op/s, which it met", number(phase.rate))
        }
        Resource::Stalls => {
            push("stall_seconds", phase.stall_seconds);
            let [stalled, all] = [phase.stall_seconds, Some(phase.seconds)].map(number);
            format!(": almost nothing was done in {stalled} s of {all} s")
        }
        Resource::Reads => {
            let reads = match phase.reads_per_op {
                Some(_) => format!("{} for each {item}", of.per(phase.reads_per_op)),
                None => format!("{} KiB for each {item}", of.per(phase.kb_read_per_op)),
            };
            match phase.reads_per_op {
                Some(_) => push("reads_per_op", phase.reads_per_op),
                None => push("kb_read_per_op", phase.kb_read_per_op),
            }
            format!(": {reads}, about {share} of the time of a client")
        }
        Resource::Writes => {
            push("kb_written_per_op", phase.kb_written_per_op);
            let kib = of.per(phase.kb_written_per_op);
            format!(": {kib} KiB for each {item}, about {share} of the time of a client")
        }
        Resource::Throttle => {
            let counter = usage.throttle.as_deref().unwrap_or_default();
            push(
                &format!("engine_counters.{counter}"),
                phase.engine_counters.get(counter).copied(),
            );
            format!(": by its own count it held clients up for {share} of the time")
        }
        Resource::Locks => {
            push("context_switches_per_op", phase.context_switches_per_op);
            let switches = of.per(phase.context_switches_per_op);
            let idle = usage.machine_busy.map_or(String::new(), |busy| {
                format!(
                    " while {} of the processors were idle",
                    percent((1.0 - busy).max(0.0))
                )
            });
            format!(
                ": its clients waited for {share} of the time{idle}, with {switches} context switches/{item} and too little I/O to explain it"
            )
        }
    }
}

/// Formats the amounts for bottlenecks of the processor.
fn processor(of: &Judged<'_>, part: Part, figures: &mut Vec<Figure>) -> String {
    let (phase, item, cpu) = (of.phase, of.item(), of.cpu());
    let share = percent(part.share);
    let mut push = |metric: &str, value: f64| figures.push(Figure::new(metric, Some(value)));
    let engine = of.per(Some(cpu.engine_foreground));
    let running = format!(": its clients were on a processor for {share} of the time");
    match part.resource {
        Resource::Client => {
            push("cpu_us_per_op.client", cpu.client.unwrap_or(0.0));
            push("cpu_us_per_op.engine_foreground", cpu.engine_foreground);
            let client = of.per(cpu.client);
            format!(
                "{running}, mostly for the laboratory ({client} us/{item}, the engine {engine})"
            )
        }
        Resource::Machine => {
            push("cpu_us_per_op.machine", cpu.machine.unwrap_or(0.0));
            push("cpu_us_per_op.engine_background", cpu.engine_background);
            let busy = of.usage.machine_busy.map(percent).unwrap_or_default();
            let background = of.per(Some(cpu.engine_background));
            format!(
                ": its clients waited for {share} of the time while {busy} of all processors were busy, the engine's own threads with \
                 {background} us/{item}"
            )
        }
        _ if of.usage.cpu_us.is_some() => {
            push("cpu_us_per_op.engine_foreground", cpu.engine_foreground);
            format!("{running}, {engine} us/{item} of it in the engine")
        }
        _ => {
            push("cpu_us_per_op.total", cpu.total);
            let used = per_item(phase, Some(cpu.total)).zip(rate(phase));
            let used = number(used.map(|(us, per_s)| us * per_s / 1e6));
            format!(
                ": {} us/{item}, which is {used} processors in use for {}, everything included{}",
                of.per(Some(cpu.total)),
                clients(phase),
                match phase.background {
                    Some(_) => ", the background clients too",
                    None => "",
                }
            )
        }
    }
}

fn clients(phase: &PhaseResult) -> String {
    match phase.clients {
        Some(1) => "1 client".to_string(),
        Some(n) => format!("{n} clients"),
        None => "all clients".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    #[test]
    fn repetitions_that_disagree_are_counted() {
        let mut suite = sample::suite();
        suite.trials.truncate(1);
        for repetition in 1..=3u32 {
            let mut trial = suite.trials[0].clone();
            trial.repetition = repetition;
            let phase = &mut trial.phases[1];
            (phase.clients, phase.ops_per_s) = (Some(2), Some(2000.0));
            let cpu = phase.cpu_us_per_op.as_mut().unwrap();
            cpu.engine_foreground = if repetition == 2 { 100.0 } else { 900.0 };
            suite.trials.push(trial);
        }
        suite.trials.remove(0);
        let found = groups(&suite, false);
        let scene = Scene::new(&suite, &found[0], 0, "alluvium".to_string());
        let finding = finding(&scene, "alluvium", "request").unwrap();
        assert_eq!(
            finding.text,
            "was bounded by CPU: its clients were on a processor for 90 % of the time, 900 us/op of it in the engine; so in 2 of 3 \
             repetitions."
        );
        assert_eq!(finding.metrics(), ["cpu_us_per_op.engine_foreground"]);
    }
}
