//! Compressed size of a workload's rows with a dense codec, for comparison with the database's
//! size.
//!
//! A sample of the load, keys and values in sequence, is compressed as one zstd frame at level 3.
//! An engine compresses each block alone, and stores keys, indexes and free space in addition: a
//! database is about as large as this figure at best. The compressed size is the ratio of the
//! sample times the bytes of all rows.

use anyhow::{Context, Result};

/// Size of the sample in bytes. At this size the ratio differs by less than a thousandth between
/// samples, and takes some tens of milliseconds.
pub const SAMPLE_BYTES: usize = 16 << 20;
/// Compression level: the default of zstd and of the engines that use it.
const LEVEL: i32 = 3;

/// Returns the compressed size of a sample divided by its size; `None` for an empty one.
///
/// # Errors
/// When the codec fails, for example without memory.
pub fn ratio(sample: &[u8]) -> Result<Option<f64>> {
    if sample.is_empty() {
        return Ok(None);
    }
    let compressed =
        zstd::bulk::compress(sample, LEVEL).context("cannot compress a sample of the rows")?;
    Ok(Some(compressed.len() as f64 / sample.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rumbench_core::large_values::{Config, LargeValues};
    use rumbench_core::trial::Workload;

    #[test]
    fn rows_compress_to_the_share_of_their_random_bytes() {
        for percent in [20, 45, 75, 95] {
            let text = percent.to_string();
            let pairs = [("value_min", "10000"), ("value_max", "20000")];
            let more = [("random_percent", text.as_str()), ("rows", "200")];
            let config = Config::from_pairs(pairs.into_iter().chain(more)).unwrap();
            let workload = LargeValues::new(config, |_| {}).unwrap();
            let sample = workload.sample(SAMPLE_BYTES);
            let found = ratio(&sample).unwrap().unwrap();
            let expected = f64::from(percent) / 100.0;
            assert!((found - expected).abs() < 0.01, "{percent} %: {found}");
        }
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert_eq!(ratio(&[]).unwrap(), None);
    }
}
