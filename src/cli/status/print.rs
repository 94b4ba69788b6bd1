//! Leases as lines and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;

use super::age;
use super::essentials::Essentials;
use crate::api::lease_status::Holder;

const HEADINGS: [&str; 9] = ["NAMESPACE", "NAME", "ACTIVE", "HOLDER", "CLUSTER", "TOKEN", "SINCE", "READY", "REASON"];

/// What a column holds at least, so that the lines of a watch stay in line: a token, an age, a reason.
const LEAST: [usize; HEADINGS.len()] = [0, 0, 7, 12, 9, 16, 6, 7, 0];

/// How leases are printed.
#[derive(Debug)]
pub(super) enum Printer {
    Table(Table),
    /// One JSON list of all.
    List,
    /// One JSON object a line.
    Lines,
}

impl Printer {
    pub fn all(&self, leases: &[Essentials], out: &mut impl Write) -> io::Result<()> {
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

    pub fn one(&self, lease: &Essentials, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Table(table) => table.line(&row(lease, Timestamp::now()), out),
            Self::List | Self::Lines => {
                serde_json::to_writer(&mut *out, lease)?;
                writeln!(out)
            }
        }?;
        // Whoever reads a watch through a pipe reads it now.
        out.flush()
    }
}

/// The widths of the columns.
#[derive(Debug)]
pub(super) struct Table {
    widths: [usize; HEADINGS.len()],
    /// 1 leaves the namespace out.
    from: usize,
}

impl Table {
    pub fn for_leases(leases: &[Essentials], with_namespace: bool) -> Self {
        let now = Timestamp::now();
        let mut widths = LEAST;
        let rows = leases.iter().map(|lease| row(lease, now)).chain([HEADINGS.map(str::to_owned)]);
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        Self { widths, from: usize::from(!with_namespace) }
    }

    fn line(&self, row: &[String; HEADINGS.len()], out: &mut impl Write) -> io::Result<()> {
        let cells = row.iter().zip(self.widths).skip(self.from).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("   ").trim_end())
    }
}

fn row(lease: &Essentials, now: Timestamp) -> [String; HEADINGS.len()] {
    let Essentials { namespace, name, active, ready, reason, holder, fencing_token, acquire_time, .. } = lease;
    let shown = |text: &Option<String>| text.clone().unwrap_or_default();
    let of_holder = |part: fn(&Holder) -> &String| holder.as_ref().map(part).cloned().unwrap_or_default();
    let since = acquire_time.as_ref().map(|since| Duration::try_from(now.duration_since(since.0)).unwrap_or_default());
    let reason = match (&lease.error, lease.deleted) {
        (_, true) => "deleted".into(),
        (Some(error), _) => format!("cannot be read: {error}"),
        (None, _) => shown(reason),
    };
    [
        namespace.clone(),
        name.clone(),
        shown(active),
        of_holder(|holder| &holder.pod),
        of_holder(|holder| &holder.cluster),
        fencing_token.map(|token| token.to_string()).unwrap_or_default(),
        since.map(age).unwrap_or_default(),
        shown(ready),
        reason,
    ]
}
