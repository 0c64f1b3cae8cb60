//! Samples counted: equal stacks together, and functions by the time that they take.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::result::HotFunction;

/// Functions that a result names, at most.
const NAMED: usize = 20;

/// Sampled stacks of one phase.
#[derive(Debug, Default, Clone)]
pub struct Stacks {
    /// How often each stack was met; the outermost function first, before it the thread.
    counts: BTreeMap<Vec<String>, u64>,
    /// Samples that the kernel could not store.
    pub lost: u64,
}

impl Stacks {
    /// One more sample.
    pub fn add(&mut self, frames: Vec<String>) {
        *self.counts.entry(frames).or_default() += 1;
    }

    /// All stacks with their numbers, neighbours alike.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.counts
            .iter()
            .map(|(frames, n)| (frames.as_slice(), *n))
    }

    /// Samples in all.
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// A stack a line, functions joined by semicolons, and the number of samples: what tools for flame graphs read.
    pub fn folded(&self) -> String {
        let lines = self.iter().map(|(frames, n)| {
            let frames = frames.iter().map(|name| name.replace([';', '\n'], ","));
            format!("{} {n}\n", frames.collect::<Vec<_>>().join(";"))
        });
        lines.collect()
    }

    /// The functions that take most, by what they do themselves.
    pub fn functions(&self) -> Vec<HotFunction> {
        let all = self.samples().max(1) as f64;
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (frames, n) in self.iter() {
            // The first is the thread.
            let frames = frames.get(1..).unwrap_or_default();
            if let Some(last) = frames.last() {
                counts.entry(last).or_default().0 += n;
            }
            // One that calls itself counts once.
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
