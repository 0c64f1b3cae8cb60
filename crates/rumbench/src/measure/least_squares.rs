//! Linear least squares with few parameters: best values, residuals, and uncertainty of the values.
//!
//! Columns are scaled to the same length before the normal equations are solved. A column of
//! `N (N - 1)` for thousands of clients then loses no precision next to a column of ones. Suitable
//! for a handful of parameters only.

/// A solved system.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Best values, one for each column.
    pub values: Vec<f64>,
    /// Sum of the squared residuals.
    pub squares: f64,
    /// Inverse of the normal matrix; multiplied by the variance of one row it is the covariance of
    /// the values.
    inverse: Vec<Vec<f64>>,
    /// Degrees of freedom: rows beyond the number of parameters.
    pub freedom: usize,
}

impl Solution {
    /// Returns the covariance of two values; `None` without a degree of freedom.
    pub fn covariance(&self, i: usize, j: usize) -> Option<f64> {
        (self.freedom > 0).then(|| self.squares / self.freedom as f64 * self.inverse[i][j])
    }
}

/// Minimizes the sum over all rows of (`target` - row · values)². `None` if the columns do not
/// determine the values.
pub fn solve(rows: &[Vec<f64>], targets: &[f64]) -> Option<Solution> {
    let columns = rows.first()?.len();
    let length = |j: usize| rows.iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt();
    let scale: Vec<f64> = (0..columns).map(length).collect();
    if scale.iter().any(|length| !length.is_normal()) {
        return None;
    }
    let product = |f: &dyn Fn(&[f64], f64) -> f64| {
        let pairs = rows.iter().zip(targets);
        pairs.map(|(row, target)| f(row, *target)).sum::<f64>()
    };
    let normal = (0..columns)
        .map(|i| {
            (0..columns)
                .map(|j| product(&|row, _| row[i] / scale[i] * row[j] / scale[j]))
                .collect()
        })
        .collect();
    let right: Vec<f64> = (0..columns)
        .map(|i| product(&|row, target| row[i] / scale[i] * target))
        .collect();
    let mut inverse = invert(normal)?;
    let values: Vec<f64> = (0..columns)
        .map(|i| (0..columns).map(|j| inverse[i][j] * right[j]).sum::<f64>() / scale[i])
        .collect();
    for (i, row) in inverse.iter_mut().enumerate() {
        for (j, entry) in row.iter_mut().enumerate() {
            *entry /= scale[i] * scale[j];
        }
    }
    let left = |row: &[f64], target: f64| {
        target - row.iter().zip(&values).map(|(a, b)| a * b).sum::<f64>()
    };
    Some(Solution {
        squares: product(&|row, target| left(row, target).powi(2)),
        freedom: rows.len().saturating_sub(columns),
        values,
        inverse,
    })
}

/// Returns the inverse by elimination with the largest pivot. `None` if the matrix is close to
/// singular.
fn invert(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    /// Limit for a pivot, with columns of length one: a smaller pivot carries no information.
    const SINGULAR: f64 = 1e-12;
    let n = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..n).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for column in 0..n {
        let size = |row: &usize| matrix[*row][column].abs();
        let pivot = (column..n).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        matrix.swap(column, pivot);
        let lead = matrix[column][column];
        if !lead.is_finite() || lead.abs() < SINGULAR {
            return None;
        }
        for entry in &mut matrix[column] {
            *entry /= lead;
        }
        let lead_row = matrix[column].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != column) {
            let factor = row[column];
            for (entry, lead) in row.iter_mut().zip(&lead_row) {
                *entry -= factor * lead;
            }
        }
    }
    for row in &mut matrix {
        row.drain(..n);
    }
    Some(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_exact_points_is_found_and_leaves_nothing_over() {
        let rows: Vec<Vec<f64>> = (1..=4).map(|x| vec![1.0, f64::from(x)]).collect();
        let targets: Vec<f64> = (1..=4).map(|x| 3.0 - 2.0 * f64::from(x)).collect();
        let found = solve(&rows, &targets).unwrap();
        assert!((found.values[0] - 3.0).abs() < 1e-9 && (found.values[1] + 2.0).abs() < 1e-9);
        assert!(found.squares < 1e-18 && found.freedom == 2);
    }

    #[test]
    fn the_variance_of_a_mean_is_the_textbook_one() {
        let found = solve(&[vec![1.0], vec![1.0], vec![1.0]], &[1.0, 2.0, 3.0]).unwrap();
        assert!((found.values[0] - 2.0).abs() < 1e-12);
        // The variance of one number is 1, that of the mean of three a third.
        assert!((found.covariance(0, 0).unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn columns_of_very_different_size_are_told_apart_and_equal_ones_are_not() {
        let rows: Vec<Vec<f64>> = (1..=8)
            .map(|i| vec![1.0, f64::from(i) * 1e8, f64::from(i * i) * 1e-8])
            .collect();
        let targets: Vec<f64> = rows
            .iter()
            .map(|r| r[0] + 2e-8 * r[1] + 3e8 * r[2])
            .collect();
        let found = solve(&rows, &targets).unwrap();
        assert!((found.values[2] / 3e8 - 1.0).abs() < 1e-6, "{found:?}");
        let same: Vec<Vec<f64>> = (1..=4).map(|_| vec![1.0, 1.0]).collect();
        assert!(solve(&same, &[1.0; 4]).is_none());
        assert!(solve(&[], &[]).is_none());
        assert!(
            solve(&[vec![1.0]], &[1.0])
                .unwrap()
                .covariance(0, 0)
                .is_none()
        );
    }
}
