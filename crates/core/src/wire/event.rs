//! Inputs and effects of a wire.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::marker::Marker;
use crate::op::Vote;
use crate::wire::batch::Request;
use crate::wire::replies::{Answer, Exception, InvalidReply, NoAnswer};

/// The answers to the requests of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// One for each request.
    Votes(Vec<Result<Answer, NoAnswer>>),
    /// To extensions: the leases that were not extended.
    Extended(Answer<Vec<Exception>>),
}

/// One input of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<K, R, C> {
    /// A request for a vote.
    Request(Request<K>, R),
    /// Send this call, which is not for votes.
    Own(C),
    /// No other request arrives at this moment: send what is due.
    Flush,
    /// A reply had this TIME of the node, in milliseconds.
    Clock {
        /// The time.
        node_time: u64,
    },
    /// The standing of the node.
    Standing {
        /// The marker that every vote must find, while the node is admitted.
        marker: Option<Marker>,
        /// The server refuses commands. It may hold terms that can be extended.
        refuses: bool,
    },
    /// The reply to a batch: what [`Wire::read`](super::Wire::read) has read.
    Answered {
        /// The number of the call.
        id: u64,
        /// Whether the clocks are known, so that votes in it count.
        counts: bool,
        /// The answers.
        answers: Answers,
    },
    /// The server returned an error to the call, which is not that it lacks the script.
    Refused {
        /// The number of the call.
        id: u64,
    },
    /// The server did not execute the call, because it does not have the script.
    NotRun {
        /// The number of the call.
        id: u64,
    },
    /// The scripts that [`Effect::Load`] asked for are loaded.
    Loaded,
    /// Time passed.
    Wake,
    /// The connection is gone. The machine can be dropped after the last effect.
    Closed,
}

/// Why requests have no vote, or calls no effect: for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No reply in time.
    Timeout,
    /// Too many requests are in flight.
    Busy,
    /// They reached the node after their deadline.
    Late,
    /// The node has another marker than the one that they named. The admission has to know.
    NotAdmitted,
    /// The server does not have the scripts.
    NoScript,
}

/// One thing to do. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K, R, C> {
    /// Write the call with this number behind all earlier ones.
    Send(u64),
    /// Load all scripts, behind all earlier calls, and give [`Input::Loaded`].
    Load,
    /// The vote on a request.
    Vote(R, Vote),
    /// So many requests, or calls, failed.
    Failed(Why, usize),
    /// A key holds a value or has a TTL that RedisLease did not write, or the counter is at its end.
    Foreign {
        /// The keys of the request.
        keys: Arc<[K]>,
        /// What was read.
        invalid: InvalidReply,
    },
    /// A call has no answer for too long: close the connection.
    Overdue,
    /// The connection was closed before the answer to this call.
    Lost(C),
}
