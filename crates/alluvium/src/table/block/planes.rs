//! Byte-plane transposition: row-major bytes to one plane for each byte position, and back.
//!
//! The same function works in both directions, because the inverse of transposing an `n` x `w`
//! matrix is transposing a `w` x `n` one. It works in tiles of 8 rows and `8 * LANES` columns. The
//! lane loops have a constant trip count and no bounds checks inside, so the compiler turns them
//! into vector instructions. The last tile of a row or column overlaps the previous one and writes
//! the same bytes again, which avoids a remainder loop.

/// Transposes `rows` x `width` bytes.
///
/// Input row `r` is at `input[from(r)..][..width]`; output row `c` (input column `c`) is written to
/// `output[to(c)..][..rows]`. The rest of `output` does not change.
///
/// # Panics
///
/// Panics if a row lies outside its slice.
pub(super) fn transpose(
    input: &[u8],
    from: impl Fn(usize) -> usize,
    (rows, width): (usize, usize),
    output: &mut [u8],
    to: impl Fn(usize) -> usize,
) {
    if rows < 8 || width < 8 {
        for r in 0..rows {
            let row = &input[from(r)..][..width];
            for (c, &byte) in row.iter().enumerate() {
                output[to(c) + r] = byte;
            }
        }
    } else if width < 32 {
        tiles::<1>(input, from, (rows, width), output, to);
    } else {
        tiles::<4>(input, from, (rows, width), output, to);
    }
}

/// The tiled case: at least 8 rows and `8 * LANES` columns.
fn tiles<const LANES: usize>(
    input: &[u8],
    from: impl Fn(usize) -> usize,
    (rows, width): (usize, usize),
    output: &mut [u8],
    to: impl Fn(usize) -> usize,
) {
    for r in tile_starts(rows, 8) {
        let sources: [usize; 8] = std::array::from_fn(|k| from(r + k));
        for c in tile_starts(width, 8 * LANES) {
            let mut tile = [[0u64; LANES]; 8];
            for (lanes, source) in tile.iter_mut().zip(sources) {
                let (words, _) = input[source + c..][..8 * LANES].as_chunks::<8>();
                for (lane, word) in lanes.iter_mut().zip(words) {
                    *lane = u64::from_le_bytes(*word);
                }
            }
            transpose_tile(&mut tile);
            for (j, lanes) in tile.iter().enumerate() {
                for (lane, word) in lanes.iter().enumerate() {
                    let at = to(c + 8 * lane + j) + r;
                    let (words, _) = output[at..at + 8].as_chunks_mut::<8>();
                    words[0] = word.to_le_bytes();
                }
            }
        }
    }
}

/// Returns the starts of tiles of `step` that cover `0..total`, with an overlap at the end.
/// Requires `total >= step`.
fn tile_starts(total: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..total.div_ceil(step)).map(move |i| (i * step).min(total - step))
}

/// Transposes the 8 x 8 bytes in each lane: byte `j` of word `i` becomes byte `i` of word `j`.
fn transpose_tile<const LANES: usize>(tile: &mut [[u64; LANES]; 8]) {
    exchange::<LANES>(tile, 4, 32, 0x0000_0000_FFFF_FFFF);
    exchange::<LANES>(tile, 2, 16, 0x0000_FFFF_0000_FFFF);
    exchange::<LANES>(tile, 1, 8, 0x00FF_00FF_00FF_00FF);
}

/// Does one step of the recursive transposition: swaps the off-diagonal blocks of `distance` x
/// `distance` bytes.
#[inline(always)]
fn exchange<const LANES: usize>(
    tile: &mut [[u64; LANES]; 8],
    distance: usize,
    shift: u32,
    mask: u64,
) {
    for i in 0..8 {
        if i & distance != 0 {
            continue;
        }
        let (upper, lower) = tile.split_at_mut(i + distance);
        for (a, b) in upper[i].iter_mut().zip(&mut lower[0]) {
            let swapped = ((*a >> shift) ^ *b) & mask;
            *a ^= swapped << shift;
            *b ^= swapped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_transposed_like_the_plain_loop() {
        for rows in 0..70 {
            for width in 0..70 {
                let input: Vec<u8> = (0..rows * width)
                    .map(|i| (i * 31 + i / 251) as u8)
                    .collect();
                let mut expected = vec![0; rows * width];
                for r in 0..rows {
                    for c in 0..width {
                        expected[c * rows + r] = input[r * width + c];
                    }
                }
                let mut output = vec![0; rows * width];
                let shape = (rows, width);
                transpose(&input, |r| r * width, shape, &mut output, |c| c * rows);
                assert_eq!(output, expected, "{rows} x {width}");
                let mut back = vec![0; rows * width];
                let shape = (width, rows);
                transpose(&output, |c| c * rows, shape, &mut back, |r| r * width);
                assert_eq!(back, input, "{rows} x {width} back");
            }
        }
    }

    #[test]
    fn bytes_between_the_output_rows_are_left_alone() {
        let input: Vec<u8> = (0..9 * 40).map(|i| i as u8).collect();
        let mut output = vec![0xEE; 40 * 12];
        transpose(&input, |r| r * 40, (9, 40), &mut output, |c| c * 12);
        for row in output.chunks(12) {
            assert_eq!(row[9..], [0xEE; 3]);
        }
    }
}
