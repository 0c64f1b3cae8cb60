//! Sample counts: equal stacks together, and functions by the time that they take.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::result::HotFunction;

/// Maximum number of functions in a result.
const NAMED: usize = 20;

/// Sampled stacks of one phase.
#[derive(Debug, Default, Clone)]
pub struct Stacks {
    /// Number of samples by stack: the thread first, then the functions from the outermost inward.
    counts: BTreeMap<Vec<String>, u64>,
    /// Samples that the kernel could not store.
    pub lost: u64,
}

impl Stacks {
    /// Adds one sample.
    pub fn add(&mut self, frames: Vec<String>) {
        *self.counts.entry(frames).or_default() += 1;
    }

    /// Returns all stacks with their counts; similar stacks are neighbors.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.counts
            .iter()
            .map(|(frames, n)| (frames.as_slice(), *n))
    }

    /// Returns the total number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the input format of flame graph tools: one stack per line, functions joined by
    /// semicolons, then the number of samples.
    pub fn folded(&self) -> String {
        let lines = self.iter().map(|(frames, n)| {
            let frames = frames.iter().map(|name| name.replace([';', '\n'], ","));
            format!("{} {n}\n", frames.collect::<Vec<_>>().join(";"))
        });
        lines.collect()
    }

    /// Returns the functions with the most samples of their own.
    pub fn functions(&self) -> Vec<HotFunction> {
        let all = self.samples().max(1) as f64;
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (frames, n) in self.iter() {
            // The first entry is the thread.
            let frames = frames.get(1..).unwrap_or_default();
            if let Some(last) = frames.last() {
                counts.entry(last).or_default().0 += n;
            }
            // A function that calls itself counts once.
            for name in frames.iter().collect::<BTreeSet<_>>() {
                counts.entry(name).or_default().1 += n;
            }
        }
        let mut found: Vec<_> = counts.into_iter().filter(|(_, n)| n.0 > 0).collect();
        found.sort_by_key(|(_, (own, _))| std::cmp::Reverse(*own));
        let shares = found
            .into_iter()
            .take(NAMED)
            .map(|(name, (own, all_of_it))| HotFunction {
                name: name.to_string(),
                own_share: own as f64 / all,
                share: all_of_it as f64 / all,
            });
        shares.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> Stacks {
        let mut stacks = Stacks::default();
        for (text, n) in [
            ("client;main;get;search", 5),
            ("client;main;get;search;search", 1),
            ("client;main;get", 2),
            ("flush;run;a;b write_[k]", 2),
        ] {
            for _ in 0..n {
                stacks.add(text.split(';').map(str::to_string).collect());
            }
        }
        stacks
    }

    #[test]
    fn functions_are_told_by_their_own_time() {
        let found = stacks().functions();
        let told = found
            .iter()
            .map(|f| (f.name.as_str(), f.own_share, f.share));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("search", 0.6, 0.6),
                ("b write_[k]", 0.2, 0.2),
                ("get", 0.2, 0.8)
            ]
        );
        assert!(Stacks::default().functions().is_empty());
    }

    #[test]
    fn stacks_are_written_as_other_tools_read_them() {
        let mut stacks = stacks();
        stacks.add(vec!["t".to_string(), "f<[u8; 4]>".to_string()]);
        assert_eq!(
            stacks.folded(),
            "client;main;get 2\nclient;main;get;search 5\nclient;main;get;search;search 1\nflush;run;a;b write_[k] 2\nt;f<[u8, 4]> 1\n"
        );
    }
}
