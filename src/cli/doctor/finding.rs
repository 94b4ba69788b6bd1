//! What the doctor has found.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::output::plain;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, with a disadvantage that the message names.
    Warning,
    /// The check could not be made.
    Unchecked,
    /// It does not work, or leases can be lost.
    Problem,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Unchecked => "UNCHECKED",
            Self::Problem => "PROBLEM",
        }
    }
}

/// One check of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub verdict: Verdict,
    /// What was checked: a fixed word.
    pub check: &'static str,
    /// The object, such as `quorum default` or `node default/a`.
    pub subject: String,
    /// One sentence. For a problem it says what to do.
    pub message: String,
}

impl Finding {
    pub fn new(verdict: Verdict, check: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { verdict, check, subject: subject.into(), message: message.into() }
    }
}

/// The exit code: 0 if nothing is wrong, 1 for a problem, 2 if there is none and something could not be checked.
pub(super) fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.verdict).max() {
        Some(Verdict::Problem) => 1,
        Some(Verdict::Unchecked) => 2,
        Some(Verdict::Ok | Verdict::Warning) | None => 0,
    }
}

/// Prints a table and a last line with the counts.
pub(super) fn print_table(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    let width = |text: fn(&Finding) -> usize| findings.iter().map(text).max().unwrap_or_default();
    let (check, subject) = (width(|finding| finding.check.len()).max(5), width(|finding| finding.subject.len()).max(7));
    writeln!(out, "{:<9}  {:<check$}  {:<subject$}  MESSAGE", "RESULT", "CHECK", "SUBJECT")?;
    for Finding { verdict, check: what, subject: on, message } in findings {
        let (on, message) = (plain(on), plain(message));
        writeln!(out, "{:<9}  {what:<check$}  {on:<subject$}  {message}", verdict.as_str())?;
    }
    let count = |verdict: Verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    writeln!(
        out,
        "{} ok, {} warnings, {} problems, {} not checked",
        count(Verdict::Ok),
        count(Verdict::Warning),
        count(Verdict::Problem),
        count(Verdict::Unchecked),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_outweighs_what_could_not_be_checked() {
        let of = |verdicts: &[Verdict]| {
            let findings: Vec<Finding> =
                verdicts.iter().map(|verdict| Finding::new(*verdict, "tls", "node q/a", "sentence")).collect();
            exit_code(&findings)
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[Verdict::Ok, Verdict::Warning]), 0);
        assert_eq!(of(&[Verdict::Unchecked, Verdict::Warning]), 2);
        assert_eq!(of(&[Verdict::Unchecked, Verdict::Problem, Verdict::Ok]), 1);
    }

    #[test]
    fn the_table_is_aligned_and_ends_with_counts() {
        let findings = [
            Finding::new(Verdict::Ok, "tls", "node q/a", "Fine."),
            Finding::new(Verdict::Problem, "eviction", "node default/bb", "Not\u{1b}[2J\nfine."),
        ];
        let mut out = Vec::new();
        print_table(&findings, &mut out).unwrap();
        let expected = "\
RESULT     CHECK     SUBJECT          MESSAGE
OK         tls       node q/a         Fine.
PROBLEM    eviction  node default/bb  Not\u{fffd}[2J fine.
1 ok, 0 warnings, 1 problems, 0 not checked
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
