//! Parses a distribution: its name, or a table with the name and its parameters.

use super::definition::{DefinitionError, Keys};
use super::source::{At, Section};
use crate::names::unknown;

type Result<T> = std::result::Result<T, DefinitionError>;

const DISTRIBUTIONS: &[&str] = &["uniform", "zipfian", "latest", "sequential", "hotspot"];

/// Returns the keys that the inline table of a distribution may have.
fn parameters(distribution: &str) -> Option<&'static [&'static str]> {
    Some(match distribution {
        "uniform" | "sequential" => &["distribution"],
        "zipfian" => &["distribution", "theta", "scrambled"],
        "latest" => &["distribution", "theta"],
        "hotspot" => &["distribution", "hot_rows_percent", "hot_operations_percent"],
        _ => return None,
    })
}

/// Parses the distribution of the rows that an operation selects.
pub(super) fn keys(section: Section<'_>) -> Result<Keys> {
    let Some(found) = section.inline("keys") else {
        let Some(name) = section.text("keys")? else {
            return Ok(Keys::Uniform);
        };
        return match name.value {
            "uniform" => Ok(Keys::Uniform),
            "sequential" => Ok(Keys::Sequential),
            known if parameters(known).is_some() => {
                let message = format!("{known} needs its parameters: keys = {}", form_of(known));
                Err(section.refuse(name.at, message))
            }
            _ => Err(unknown_distribution(section, name)),
        };
    };
    // The name comes first because it decides the allowed parameters.
    let given: Vec<&str> = found.value.keys().map(|key| &**key.get_ref()).collect();
    let open =
        |allowed: &[&str]| Section::new(section.source, "`keys`", found.at, found.value, allowed);
    let inner = open(&given)?;
    let name = inner.text("distribution")?;
    let form = format!("one of {}", DISTRIBUTIONS.join(", "));
    let name = inner.required("distribution", &form, name)?;
    let Some(allowed) = parameters(name.value) else {
        return Err(unknown_distribution(section, name));
    };
    let inner = open(allowed)?;
    Ok(match name.value {
        "sequential" => Keys::Sequential,
        "zipfian" => Keys::Zipfian {
            theta: theta(inner, name.value)?,
            scrambled: inner.flag("scrambled")?.unwrap_or(true),
        },
        "latest" => Keys::Latest {
            theta: theta(inner, name.value)?,
        },
        "hotspot" => Keys::Hotspot {
            rows: share(inner, "hot_rows_percent")?,
            operations: share(inner, "hot_operations_percent")?,
        },
        _ => Keys::Uniform,
    })
}

fn unknown_distribution(section: Section<'_>, name: At<&str>) -> DefinitionError {
    section.refuse(name.at, unknown("distribution", name.value, DISTRIBUTIONS))
}

fn theta(section: Section<'_>, distribution: &str) -> Result<f64> {
    let theta = section.decimal("theta", 0.01, 10.0)?;
    let form = format!("the exponent, as in keys = {}", form_of(distribution));
    let theta = section.required("theta", &form, theta)?;
    // The generator divides by 1 - theta.
    if theta == 1.0 {
        let message = "`theta` cannot be 1; take 0.999 or 1.001";
        return Err(section.refuse(section.place_of("theta"), message));
    }
    Ok(theta)
}

fn share(section: Section<'_>, key: &str) -> Result<f64> {
    let percent = section.decimal(key, 0.0, 100.0)?;
    let form = format!("a share, as in keys = {}", form_of("hotspot"));
    let percent = section.required(key, &form, percent)?;
    Ok(percent / 100.0)
}

/// Returns an example of a distribution with its parameters.
fn form_of(distribution: &str) -> &'static str {
    match distribution {
        "zipfian" => r#"{ distribution = "zipfian", theta = 0.99 }"#,
        "latest" => r#"{ distribution = "latest", theta = 0.99 }"#,
        _ => r#"{ distribution = "hotspot", hot_rows_percent = 20, hot_operations_percent = 80 }"#,
    }
}
