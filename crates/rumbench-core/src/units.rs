//! Sizes and times as people write them: `384M`, `192MiB`, `1.5G`; `500ms`, `10m`, `2h`.
//!
//! A number without a unit is a number of bytes or seconds. `K`, `M`, `G` and `T` are powers of
//! 1024, as in the kernel's and systemd's limits, with or without `iB`; `kB`, `MB`, `GB` and `TB`
//! are powers of 1000.

const KIB: f64 = 1024.0;

/// Units of sizes, in bytes.
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("K", KIB),
    ("KiB", KIB),
    ("kB", 1e3),
    ("M", KIB * KIB),
    ("MiB", KIB * KIB),
    ("MB", 1e6),
    ("G", KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("GB", 1e9),
    ("T", KIB * KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
    ("TB", 1e12),
];

/// Units of times, in seconds.
const TIMES: &[(&str, f64)] = &[
    ("", 1.0),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

/// Parses a size in bytes.
///
/// # Errors
/// The allowed values, if the text is no size, or one that is not a whole number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    // An exact number of bytes may have more digits than an f64.
    if let Ok(bytes) = text.parse() {
        return Ok(bytes);
    }
    let bytes =
        quantity(text, SIZES).filter(|bytes| bytes.fract() == 0.0 && *bytes < 2f64.powi(63));
    let allowed = || "must be a number of bytes such as 402653184, 384M or 1.5GiB".to_string();
    bytes.map(|bytes| bytes as u64).ok_or_else(allowed)
}

/// Parses a time in seconds.
///
/// # Errors
/// The allowed values, if the text is no time.
pub fn seconds(text: &str) -> Result<f64, String> {
    let allowed = || "must be a number of seconds such as 90, 500ms, 10m or 2h".to_string();
    quantity(text, TIMES).ok_or_else(allowed)
}

/// Parses a time that is a whole number of seconds, at least one.
///
/// # Errors
/// The allowed values.
pub fn whole_seconds(text: &str) -> Result<u64, String> {
    let seconds = seconds(text)?;
    if seconds.fract() == 0.0 && (1.0..1e15).contains(&seconds) {
        Ok(seconds as u64)
    } else {
        Err("must be a whole number of seconds from 1, such as 90, 10m or 2h".to_string())
    }
}

/// Names of settings that are sizes, without the word `bytes`: those of LinkBench's payloads and of
/// large values.
const SIZE_SETTINGS: [&str; 4] = ["link_datasize", "node_datasize", "value_min", "value_max"];

/// Returns the value of a setting without its unit if the key says that it is a number of bytes or
/// seconds: its last part is `bytes` or `seconds`, or it is `link_datasize`, `node_datasize`,
/// `value_min` or `value_max`. Other values, and texts that are no size or time, stay as they are.
pub fn plain(key: &str, value: &str) -> String {
    let is_of = |last: &str| key.rsplit(['_', '.']).next() == Some(last);
    let number = match () {
        () if is_of("bytes") || SIZE_SETTINGS.contains(&key) => {
            bytes(value.trim()).map(|bytes| bytes.to_string())
        }
        () if is_of("seconds") => seconds(value.trim()).map(|seconds| seconds.to_string()),
        () => return value.to_string(),
    };
    number.unwrap_or_else(|_| value.to_string())
}

/// Returns a number times its unit; `None` if the text is no number with one of the units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_of_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, expected) in [
            ("0", 0),
            ("402653184", 402_653_184),
            ("18446744073709551615", u64::MAX),
            ("384M", 384 << 20),
            ("192MiB", 192 << 20),
            ("192 MiB", 192 << 20),
            ("1.5G", 3 << 29),
            ("4K", 4096),
            ("4kB", 4000),
            ("2TB", 2_000_000_000_000),
            ("7B", 7),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "", "M", "-1", "1.5", "0.3K", "4Q", "4m", "1e3", "1,5G", "9999999T",
        ] {
            let said = bytes(text).expect_err(text);
            assert!(said.contains("384M"), "{said}");
        }
    }

    #[test]
    fn times_have_units_from_milliseconds_to_days() {
        for (text, expected) in [
            ("90", 90.0),
            ("0.25", 0.25),
            ("500ms", 0.5),
            ("10m", 600.0),
            ("10min", 600.0),
            ("2h", 7200.0),
            ("1.5d", 129_600.0),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "10M", "1:30", "-5", "inf", "NaN"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(whole_seconds("2m"), Ok(120));
        assert!(whole_seconds("500ms").is_err() && whole_seconds("0").is_err());
    }

    #[test]
    fn only_settings_of_bytes_and_seconds_lose_their_unit() {
        assert_eq!(plain("cache_bytes", "192MiB"), "201326592");
        assert_eq!(plain("seconds", "10m"), "600");
        assert_eq!(plain("warmup_seconds", "1500ms"), "1.5");
        assert_eq!(plain("alluvium.block_bytes", "4K"), "4096");
        assert_eq!(plain("value_bytes", "100"), "100");
        assert_eq!(plain("node_datasize", "1K"), "1024");
        assert_eq!(plain("value_max", "64KiB"), "65536");
        assert_eq!(plain("steps", "10m"), "10m");
        assert_eq!(plain("cache_bytes", "much"), "much");
    }
}
