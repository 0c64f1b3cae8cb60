//! Classes of frame sizes: sixteen for each power of two, so that a frame has less than a sixteenth
//! of unused bytes, and a multiple of a cache line.

use alluvium_mem::frames::FRAME_ALIGN;

/// Bits of a size after its highest one that a class keeps.
const PRECISION: u32 = 4;

/// Returns the number of the smallest class whose frames have at least `bytes`.
pub(super) fn class_of(bytes: usize) -> usize {
    let lines = bytes.div_ceil(FRAME_ALIGN).max(1);
    let lines = lines.next_multiple_of(1 << shift_of(lines));
    // The rounding may have carried into the next power of two.
    let shift = shift_of(lines);
    ((shift as usize) << PRECISION) + (lines >> shift)
}

/// Returns the size of a class's frames in bytes.
pub(super) fn frame_bytes_of(class: usize) -> usize {
    let shift = (class >> PRECISION).saturating_sub(1);
    let lines = (class - (shift << PRECISION)) << shift;
    lines * FRAME_ALIGN
}

fn shift_of(lines: usize) -> u32 {
    lines.ilog2().saturating_sub(PRECISION)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_and_in_order() {
        let mut last = (0, 0);
        for bytes in (1..100_000).chain((17..40).map(|bit| (1 << bit) + 1)) {
            let class = class_of(bytes);
            let frame = frame_bytes_of(class);
            assert!(frame >= bytes && frame.is_multiple_of(FRAME_ALIGN));
            assert!(frame < bytes + FRAME_ALIGN + bytes / 16, "{bytes}: {frame}");
            assert_eq!(class_of(frame), class);
            assert!(class > last.0 || (class, frame) == last, "{bytes}");
            if bytes < 100_000 {
                assert!(class <= last.0 + 1, "{bytes}");
            }
            last = (class, frame);
        }
        assert!(last.0 < 1_000);
    }
}
