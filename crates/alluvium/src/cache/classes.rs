//! Classes of frame sizes: sixteen for each power of two, so that a frame has less than a sixteenth
//! of unused bytes, and a multiple of a cache line.

use alluvium_mem::frames::FRAME_ALIGN;

/// Bits of a size after its highest one that a class keeps.
const PRECISION: u32 = 4;

/// Returns the number of the smallest class whose frames have at least `bytes`, and the size of its
/// frames.
pub(super) fn class_of(bytes: usize) -> (usize, usize) {
    let lines = bytes.div_ceil(FRAME_ALIGN).max(1);
    let shift = (usize::BITS - lines.leading_zeros()).saturating_sub(PRECISION + 1);
    let step = 1 << shift;
    let lines = lines.next_multiple_of(step);
    // The rounding may have carried into the next power of two.
    let shift = (usize::BITS - lines.leading_zeros()).saturating_sub(PRECISION + 1);
    let class = (shift as usize) << PRECISION;
    (class + (lines >> shift), lines * FRAME_ALIGN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_and_in_order() {
        let mut last = (0, 0);
        for bytes in (1..100_000).chain((17..40).map(|bit| (1 << bit) + 1)) {
            let (class, frame) = class_of(bytes);
            assert!(frame >= bytes && frame.is_multiple_of(FRAME_ALIGN));
            assert!(frame < bytes + FRAME_ALIGN + bytes / 16, "{bytes}: {frame}");
            assert_eq!(class_of(frame), (class, frame));
            assert!(class > last.0 || (class, frame) == last, "{bytes}");
            if bytes < 100_000 {
                assert!(class <= last.0 + 1, "{bytes}");
            }
            last = (class, frame);
        }
        assert!(last.0 < 1_000);
    }
}
