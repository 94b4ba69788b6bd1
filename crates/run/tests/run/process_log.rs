//! The times at which the workers of a lease ran.

use std::collections::BTreeMap;
use std::path::Path;

/// The first and the last time of each token, in nanoseconds of `CLOCK_BOOTTIME`.
pub fn read(log: &Path) -> BTreeMap<u64, (u64, u64)> {
    let mut terms = BTreeMap::<u64, (u64, u64)>::new();
    for line in std::fs::read_to_string(log).unwrap_or_default().lines() {
        let numbers =
            line.trim_end().split_once(' ').and_then(|(token, time)| Some((token.parse().ok()?, time.parse().ok()?)));
        let (token, time) = numbers.unwrap_or_else(|| panic!("{}: {line:?}", log.display()));
        let term = terms.entry(token).or_insert((time, time));
        *term = (term.0.min(time), term.1.max(time));
    }
    terms
}

/// By how many nanoseconds the terms of two tokens overlap, for each pair that does.
pub fn overlaps(terms: &BTreeMap<u64, (u64, u64)>) -> Vec<u64> {
    let mut terms: Vec<_> = terms.values().copied().collect();
    terms.sort_unstable();
    terms.windows(2).filter_map(|pair| pair[0].1.checked_sub(pair[1].0)).collect()
}

#[test]
fn overlaps_are_found() {
    let terms = |list: &[(u64, u64)]| {
        list.iter().enumerate().map(|(token, term)| (u64::try_from(token).unwrap(), *term)).collect()
    };
    assert_eq!(overlaps(&terms(&[(1, 5), (6, 9), (10, 10)])), Vec::<u64>::new());
    assert_eq!(overlaps(&terms(&[(1, 5), (3, 9)])), [2]);
}
