//! Numbers and lists as text: digits, separated thousands, units, sentences.

/// Converts bytes to GiB.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Formats a number with about three significant digits and separated thousands; `-` if nothing was
/// measured.
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return "-".to_string();
    };
    match value.abs() {
        0.0 => "0".to_string(),
        size if size < 0.0095 => format!("{value:.4}"),
        size if size < 0.995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => thousands(value.round()),
    }
}

/// Formats a count: a whole number with separated thousands.
pub fn count(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| thousands(value.round()))
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// Formats a number as in the tables, but without trailing zeros and with k, M and G for large
/// values.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = number(Some(scaled));
    let trimmed = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{trimmed}{suffix}")
}

/// Formats microseconds with a suitable unit.
pub fn microseconds(us: f64) -> String {
    match us {
        us if us >= 999_500.0 => format!("{} s", short(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", short(us / 1e3)),
        us => format!("{} us", short(us)),
    }
}

/// Formats a share in whole percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a ratio: with two decimals, or about three digits if it is large.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => number(Some(r)),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r => number(Some(r)),
    }
}

/// Joins words to a list in a sentence: `a`, `a and b`, `a, b and c`.
pub fn and(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits_and_separate_thousands() {
        let text = |value| number(Some(value));
        assert_eq!(text(1234567.8), "1,234,568");
        assert_eq!(text(0.1234), "0.123");
        assert_eq!(text(12.34), "12.3");
        assert_eq!(text(99.97), "100");
        assert_eq!(count(Some(6.0)), "6");
        assert_eq!(
            (number(None), text(f64::NAN)),
            ("-".to_string(), "-".to_string())
        );
    }

    #[test]
    fn lists_read_as_sentences() {
        let words = |n: usize| {
            and(&["a", "b", "c"][..n]
                .iter()
                .map(|w| (*w).to_string())
                .collect::<Vec<_>>())
        };
        assert_eq!(
            [words(0), words(1), words(2), words(3)],
            ["", "a", "a and b", "a, b and c"]
        );
    }
}
