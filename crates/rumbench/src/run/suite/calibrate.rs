//! Cost of the client itself: short trials on `null` before the suite's own.

use std::collections::BTreeMap;

use anyhow::Result;

use super::super::plan::{self, EngineChoice, Point};
use super::super::progress::say;
use super::super::split;
use super::super::status::SuiteStatus;
use super::{Runner, remove};
use crate::catalog;
use crate::store::result::Host;

impl Runner<'_> {
    /// Measures the client's own cost with short trials on `null`: one, or one for each value that
    /// changes the client's work.
    pub(super) fn calibrate(&mut self, trials: usize) -> Result<()> {
        let choices = self.suite.engines();
        if choices.iter().all(|choice| choice.engine == "null") {
            return Ok(());
        }
        let mut builds: Vec<Option<Host>> = Vec::new();
        for choice in choices.iter().filter(|choice| choice.engine != "null") {
            if !builds.contains(&choice.host) {
                builds.push(choice.host.clone());
            }
        }
        // `null` ignores the settings of an engine.
        let varied = self.suite.varied.as_ref();
        let each = varied.is_some_and(|varied| !varied.is_of_an_engine());
        let points = if each { self.suite.points.len() } else { 1 };
        for host in builds {
            for point in self.suite.points.iter().take(points) {
                if self.interrupts.count() > 0 {
                    return Ok(());
                }
                let point = Point {
                    label: point.label.clone().filter(|_| each),
                    ..point.clone()
                };
                self.calibration(host.clone(), &point, trials)?;
            }
        }
        Ok(())
    }

    /// Runs one calibration trial and adds it to the result.
    fn calibration(&mut self, host: Option<Host>, point: &Point, trials: usize) -> Result<()> {
        let (settings, overrides) = catalog::shortened(&self.suite.workload, &point.settings)?;
        let choice = EngineChoice {
            engine: "null".to_string(),
            variant: None,
            host,
            settings: BTreeMap::new(),
        };
        let mut trial = self.new_trial(&choice, point, 1, String::new());
        let key = trial.build_and_point();
        let known = if key.is_empty() {
            self.result.calibration.is_some()
        } else {
            self.result.calibrations.contains_key(&key)
        };
        if known {
            return Ok(());
        }
        let directory = self.data_directory(plan::CALIBRATION_FOLDER)?;
        let mut spec = self.spec(&choice, point, self.suite.seed, &directory);
        spec.settings = settings;
        spec.rate = None;
        spec.turnover = None;
        let status = SuiteStatus {
            trials,
            label: format!("calibration on {}", trial.contestant()),
            ..SuiteStatus::default()
        };
        // The trial has a shorter load and no engine, so it needs no bounds.
        self.drive(&spec, &mut trial, status, None)?;
        remove(&directory);
        if !trial.marks.is_empty() {
            self.progress.clear();
            let marks = trial.marks.join("; ");
            say(&format!(
                "warning: no calibration on {}: {marks}",
                trial.contestant()
            ));
            return Ok(());
        }
        let mut found = split::calibration(&trial.phases, overrides);
        let rows = catalog::workload(&self.suite.workload, &spec.settings, spec.seed)?;
        found.laboratory_bytes = found
            .laboratory_bytes
            .map(|bytes| bytes.saturating_sub(rows.memory_bytes()));
        if key.is_empty() {
            self.result.calibration = Some(found)
        } else {
            drop(self.result.calibrations.insert(key, found))
        }
        Ok(())
    }
}
