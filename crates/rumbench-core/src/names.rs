//! Suggestions for unknown names: the nearest name that exists.

/// Returns the name among `names` that is most similar to `wanted`, if any is similar enough.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Below this similarity a suggestion only confuses: "foo" is not a misspelled "null".
    const LIKE: f64 = 0.7;
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wanted, name), name))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Returns the message `no WHAT is named ...` with the nearest of the known names, or all of them.
pub fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there are none".to_string(),
        None => format!("there are: {}", known.join(", ")),
    };
    format!("no {what} is named `{name}`; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_answered_with_the_nearest_or_with_all() {
        assert_eq!(
            unknown("engine", "nul", &["null", "sqlite"]),
            "no engine is named `nul`; did you mean `null`?"
        );
        assert_eq!(
            unknown("engine", "zzz", &["null", "sqlite"]),
            "no engine is named `zzz`; there are: null, sqlite"
        );
        assert_eq!(
            unknown("variant of null", "fast", &[]),
            "no variant of null is named `fast`; there are none"
        );
    }
}
