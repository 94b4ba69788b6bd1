//! The marker of a node: which server may vote, and under which configuration.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;

use crate::time::Millis;

/// The identity that a Redis server takes at each start: 40 hexadecimal digits.
pub type RunId = Arc<str>;

/// The value of the marker key: `<run_id>:<generation>:<fingerprint>` or `wait:<run_id>:<nonce>`.
///
/// A restart changes the run id and a flush removes the marker, so that a node that lost its data is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// This server votes, under this configuration.
    Admitted {
        /// The server that was admitted.
        run_id: RunId,
        /// The generation of the configuration.
        generation: u64,
        /// The configuration: node names, majority, longest lease.
        fingerprint: Arc<str>,
    },
    /// A ticket: a process waits until every lease that this server may have lost has ended.
    Wait {
        /// The server process that waits. After its restart the ticket does not count.
        run_id: RunId,
        /// Distinguishes this wait from every other.
        nonce: u128,
    },
}

impl Marker {
    /// The server that the marker names.
    pub const fn run_id(&self) -> &RunId {
        match self {
            Self::Admitted { run_id, .. } | Self::Wait { run_id, .. } => run_id,
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted { run_id, generation, fingerprint } => write!(f, "{run_id}:{generation}:{fingerprint}"),
            Self::Wait { run_id, nonce } => write!(f, "wait:{run_id}:{nonce:032x}"),
        }
    }
}

/// A text that is not a marker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MalformedMarker(pub String);

impl fmt::Display for MalformedMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the marker `{}` is neither `<run_id>:<generation>:<fingerprint>` nor `wait:<run_id>:<nonce>`",
            self.0
        )
    }
}

impl core::error::Error for MalformedMarker {}

impl core::str::FromStr for Marker {
    type Err = MalformedMarker;
    fn from_str(text: &str) -> Result<Self, MalformedMarker> {
        let malformed = || MalformedMarker(text.to_string());
        let mut parts = text.splitn(3, ':');
        let (Some(first), Some(second), Some(third)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let marker = if first == "wait" {
            let nonce = u128::from_str_radix(third, 16).map_err(|_| malformed())?;
            Self::Wait { run_id: second.into(), nonce }
        } else {
            let generation = second.parse().map_err(|_| malformed())?;
            Self::Admitted { run_id: first.into(), generation, fingerprint: third.into() }
        };
        // The scripts compare texts: the admission by another text than the stored one would never succeed.
        if marker.to_string() == text { Ok(marker) } else { Err(malformed()) }
    }
}

/// The configuration of a quorum, on which all processes that use the quorum must agree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Counts the changes of the set of nodes, from 1.
    pub generation: u64,
    /// Stands for node names, majority, longest lease and key prefix: see [`fingerprint`].
    pub fingerprint: Arc<str>,
}

impl Membership {
    /// The marker of a server that votes under this configuration.
    pub fn marker(&self, run_id: RunId) -> Marker {
        Marker::Admitted { run_id, generation: self.generation, fingerprint: self.fingerprint.clone() }
    }

    /// The name of the configuration for people: `<generation>:<fingerprint>`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.generation, self.fingerprint)
    }
}

/// The fingerprint of an operator's quorum: the 64-bit FNV-1a hash, in 16 hexadecimal digits, of a text such as
/// `a,b,c;q=2;max=60000ms;prefix=redislease`: the sorted node names, the majority, the longest lease and the prefix of all keys. All
/// processes on a quorum must compute the same text, so the format must never change.
pub fn fingerprint(sorted_names: &[&str], majority: usize, longest: Millis, prefix: &str) -> String {
    let text = format!("{};q={majority};max={}ms;prefix={prefix}", sorted_names.join(","), longest.0);
    // The hash of the standard library can change between Rust versions.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_round_trip() {
        for text in ["3f:1:9c2b", "wait:3f:000000000000000000000000000000ff"] {
            assert_eq!(text.parse::<Marker>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_foreign_text_is_named_in_the_error() {
        for text in ["", "3f", "3f:1", "3f:x:9c2b", "wait:3f:zz", "wait:3f:ff", "3f:01:9c2b", "3f:+1:9c2b"] {
            let error = text.parse::<Marker>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
