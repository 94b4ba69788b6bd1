//! Prints an explanation.

use std::io::{self, Write};

use super::explain::Explanation;
use crate::cli::output::plain;

/// Prints sentences by topic.
pub(super) fn text(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let Explanation { namespace, name, .. } = explanation;
    writeln!(out, "RedisLease {namespace}/{name}")?;
    topic("Holder", &explanation.holder, out)?;
    topic("Last term", &explanation.last_term, out)?;
    topic("Candidates", std::slice::from_ref(&explanation.candidates_summary), out)?;
    let rows: Vec<_> = explanation.candidates.iter().map(|pod| (pod.pod.as_str(), pod.verdict.clone())).collect();
    table(&rows, out)?;
    topic("Quorum", &explanation.quorum, out)?;
    let rows: Vec<_> = explanation
        .nodes
        .iter()
        .map(|node| {
            let message = node.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            (node.name.as_str(), if node.votes { "votes".to_owned() } else { format!("{}{message}", node.state) })
        })
        .collect();
    table(&rows, out)?;
    topic("Next change", &explanation.next, out)
}

fn topic(heading: &str, sentences: &[String], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{heading}")?;
    sentences.iter().try_for_each(|sentence| writeln!(out, "  {}", plain(sentence)))
}

fn table(rows: &[(&str, String)], out: &mut impl Write) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    rows.iter().try_for_each(|(name, text)| writeln!(out, "    {:<width$}   {}", plain(name), plain(text)))
}
