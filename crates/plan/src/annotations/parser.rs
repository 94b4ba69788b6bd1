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

    /// Reports an invalid value, or that a value is missing.
    pub fn invalid<'v>(
        &mut self,
        name: &str,
        value: impl Into<Option<&'v str>>,
        must: &str,
        instead: impl Into<Option<&'v str>>,
    ) {
        self.problems.push(Problem::invalid(name, value.into(), must, instead.into(), UNCHANGED));
    }
}
