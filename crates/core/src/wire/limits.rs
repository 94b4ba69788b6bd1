//! How much is sent together, and how much may be without an answer.

use crate::time::{Millis, Time};

/// The limits of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many requests one call has at most, extensions not counted: a server needs less than 1 ms for them.
    pub requests: usize,
    /// How many leases one call extends at most.
    pub leases: usize,
    /// How many keys one call has at most, unless one request has more.
    pub keys: usize,
    /// How many calls with extensions are in flight at most. A server needs about 0.25 ms for a call, so a later request waits
    /// for a few milliseconds; with a network latency of 50 ms they extend 32,000 leases a second.
    pub calls: usize,
    /// The maximum difference between the deadlines of the requests of one call: the server uses the earliest for all.
    pub deadlines: Millis,
    /// Requests wait while they are fewer than the requests in flight divided by this number.
    pub part: usize,
    /// How long requests wait at most. A server that does not answer must have a release behind its acquire before the connection
    /// is closed: when it resumes, it executes both.
    pub wait: Millis,
    /// How many requests may be in flight for each millisecond of the command timeout, extensions not counted. A server needs
    /// about 15 us for a request, so a renewal behind all of them waits for a third of the timeout. Releases above the limit wait
    /// for others; other requests are refused.
    pub in_flight_a_milli: u64,
    /// The same for a long timeout: a quarter of a second.
    pub in_flight: u64,
}

impl Limits {
    /// Those of a process.
    pub const STANDARD: Self = Self {
        requests: 128,
        leases: 100,
        keys: 200,
        calls: 16,
        deadlines: Millis(50),
        part: 2,
        wait: Millis(2),
        in_flight_a_milli: 20,
        in_flight: 1 << 14,
    };
}

/// The time between two instants.
pub(super) fn apart(one: Time, other: Time) -> Millis {
    one.since(other).max(other.since(one))
}
