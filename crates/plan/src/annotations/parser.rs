//! Reads the annotations of one workload and gathers what is wrong with them.

use std::collections::BTreeMap;

use super::problem::Problem;

/// What happens to a lease whose workload has invalid annotations.
pub(super) const UNCHANGED: &str = "The operator does not create, change or delete the lease until this is corrected.";

pub(super) struct Parser<'a> {
    pub annotations: &'a BTreeMap<String, String>,
    pub problems: Vec<Problem>,
}

impl<'a> Parser<'a> {
    pub fn value(&self, name: &str) -> Option<&'a str> {
        self.annotations.get(name).map(String::as_str)
    }

    pub fn invalid(&mut self, name: &str, value: &str, must: &str, instead: Option<&str>) {
        self.problems.push(invalid(name, Some(value), must, instead));
    }

    pub fn report(&mut self, name: &str, value: Option<&str>, must: &str, instead: &str) {
        self.problems.push(invalid(name, value, must, Some(instead)));
    }
}

pub(super) fn invalid(name: &str, value: Option<&str>, must: &str, instead: Option<&str>) -> Problem {
    Problem::invalid(name, value, must, instead, UNCHANGED)
}
