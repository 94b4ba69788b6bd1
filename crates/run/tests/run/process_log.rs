//! The times at which the workers of a lease ran.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::worker;

/// How many lines [`has_changed_hands`] reads at the end.
const LAST: usize = 64;

/// The first and the last time of each token, in nanoseconds of `CLOCK_BOOTTIME`.
pub fn read(log: &Path) -> BTreeMap<u64, (u64, u64)> {
    let mut terms = BTreeMap::<u64, (u64, u64)>::new();
    for [token, time, _] in lines(log) {
        let term = terms.entry(token).or_insert((time, time));
        *term = (term.0.min(time), term.1.max(time));
    }
    terms
}

/// Whether one of the last lines is of another term than the first one. Reads no other lines: a test asks this again and again. When
/// both terms run, one of them may write many times as often.
pub fn has_changed_hands(log: &Path) -> bool {
    let Ok(file) = File::open(log) else { return false };
    let tokens = |from: u64, lines: usize| -> Vec<String> {
        let mut text = vec![0; lines * worker::LINE];
        let count = file.read_at(&mut text, from).unwrap();
        let text = str::from_utf8(&text[..count]).unwrap();
        text.lines().filter_map(|line| line.split_whitespace().next()).map(Into::into).collect()
    };
    let first = tokens(0, 1);
    let length = file.metadata().unwrap().len();
    tokens(length.saturating_sub((LAST * worker::LINE) as u64), LAST).iter().any(|token| !first.contains(token))
}

/// The last deadline that a worker with this token has known, in milliseconds of `CLOCK_BOOTTIME`. Workers look at it every 30 ms, and
/// each renewal moves it long before it has come.
pub fn deadline(log: &Path, token: u64) -> u64 {
    let known = lines(log).into_iter().filter(|[of, _, deadline]| *of == token && *deadline > 0);
    known.map(|[.., deadline]| deadline).max().unwrap()
}

/// Token, time and deadline of each line. The deadline is zero before the worker has read it.
fn lines(log: &Path) -> Vec<[u64; 3]> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let numbers = |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    let line = |line: &str| numbers(line).try_into().unwrap_or_else(|_| panic!("{}: {line:?}", log.display()));
    text.lines().map(line).collect()
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
