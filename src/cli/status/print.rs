//! Prints leases as a table or as JSON.
//!
//! A table library (comfy-table) needs all rows before it prints the first; here the rows of a watch follow.

use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;

use super::summary::LeaseSummary;
use crate::api::lease_status::Holder;
use crate::cli::age::format_age;

const HEADINGS: [&str; 10] =
    ["NAMESPACE", "NAME", "ACTIVE", "HOLDER", "CLUSTER", "SINCE", "CANDIDATES", "LAST END", "READY", "MESSAGE"];

/// The minimum widths of the columns, so that later lines of a watch still fit: for a status, an age, or the most frequent
/// reason of an end.
const MIN_WIDTHS: [usize; HEADINGS.len()] = [0, 0, 7, 12, 9, 6, 10, 13, 7, 0];

/// Prints leases in one of the output formats.
#[derive(Debug)]
pub(super) enum Printer {
    Table(Table),
    /// One JSON list.
    List,
    /// One JSON object per line.
    Lines,
}

impl Printer {
    pub fn all(&self, leases: &[LeaseSummary], out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Table(table) => {
                table.line(&HEADINGS.map(str::to_owned), out)?;
                leases.iter().try_for_each(|lease| self.one(lease, out))
            }
            Self::List => {
                serde_json::to_writer_pretty(&mut *out, leases)?;
                writeln!(out)
            }
            Self::Lines => leases.iter().try_for_each(|lease| self.one(lease, out)),
        }
    }

    pub fn one(&self, lease: &LeaseSummary, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Table(table) => table.line(&row(lease, Timestamp::now()), out),
            Self::List | Self::Lines => {
                serde_json::to_writer(&mut *out, lease)?;
                writeln!(out)
            }
        }?;
        // A reader at the other end of a pipe gets each line immediately.
        out.flush()
    }
}

/// A table whose column widths are fixed when the first lines are printed.
#[derive(Debug)]
pub(super) struct Table {
    widths: [usize; HEADINGS.len()],
    /// The index of the first column: 1 omits the namespace.
    first: usize,
}

impl Table {
    pub fn for_leases(leases: &[LeaseSummary], with_namespace: bool) -> Self {
        let now = Timestamp::now();
        let mut widths = MIN_WIDTHS;
        let rows = leases.iter().map(|lease| row(lease, now)).chain([HEADINGS.map(str::to_owned)]);
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        Self { widths, first: usize::from(!with_namespace) }
    }

    fn line(&self, row: &[String; HEADINGS.len()], out: &mut impl Write) -> io::Result<()> {
        let cells = row.iter().zip(self.widths).skip(self.first).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("   ").trim_end())
    }
}

fn row(lease: &LeaseSummary, now: Timestamp) -> [String; HEADINGS.len()] {
    let LeaseSummary { namespace, name, active, ready, message, holder, acquire_time, candidates, last_end, .. } =
        lease;
    let text_of = |text: &Option<String>| text.clone().unwrap_or_default();
    let of_holder = |part: fn(&Holder) -> &String| holder.as_ref().map(part).cloned().unwrap_or_default();
    let since = acquire_time.as_ref().map(|since| Duration::try_from(now.duration_since(since.0)).unwrap_or_default());
    let message = match (&lease.error, lease.is_deleted) {
        (_, true) => "deleted".into(),
        (Some(error), _) => format!("cannot be parsed: {error}"),
        (None, _) => text_of(message),
    };
    [
        namespace.clone(),
        name.clone(),
        text_of(active),
        of_holder(|holder| &holder.pod),
        of_holder(|holder| &holder.cluster),
        since.map(format_age).unwrap_or_default(),
        candidates.as_ref().map(|known| format!("{}/{}", known.eligible, known.total)).unwrap_or_default(),
        text_of(last_end),
        text_of(ready),
        message,
    ]
}
