//! Inputs and effects of a wire.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::admission;
use crate::marker::Marker;
use crate::op::Vote;
use crate::wire::batch::Request;
use crate::wire::replies::{Answer, Exception, InvalidReply, NoAnswer};

/// The answers in the reply to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// One for each request.
    Votes(Vec<Result<Answer, NoAnswer>>),
    /// To extensions: the leases that were not extended.
    Extended(Answer<Vec<Exception>>),
    /// To a call of the admission: the present marker, if there is one.
    Marker(Option<Marker>),
}

/// One input of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Input<K, R, C> {
    /// A request for a vote. Without a connection it was not executed, and has its vote at once.
    Request(Request<K>, R),
    /// Send this call, which is not for votes. Without a connection it is lost.
    Own(C),
    /// No other request arrives at this moment: send what is due.
    Flush,
    /// A reply had this TIME of the node, in milliseconds.
    Clock { node_time: u64 },
    /// A connection is open. The admission takes part in it from [`admission::Input::Connected`].
    Opened,
    /// An input of the admission, other than a marker and the end of the connection.
    Admission(admission::Input),
    /// Whether the server refuses commands. It may hold terms that can be extended.
    Refuses(bool),
    /// The reply to a call for votes or of the admission, as [`Wire::read`](super::Wire::read) has read it. Before come its
    /// [`Input::Clock`], and what the [judge](crate::judge) finds by that: the answers may be older than a step of the clock.
    Answered {
        id: u64,
        /// Whether the clocks are known, so that votes in it count.
        counts: bool,
        answers: Answers,
    },
    /// The server returned an error to the call, which is not that it lacks the script.
    Refused { id: u64 },
    /// The server did not execute the call, because it does not have the script.
    NotRun { id: u64 },
    /// The scripts that [`Effect::Load`] asked for are loaded.
    Loaded,
    /// Time passed.
    Wake,
    /// The connection is gone.
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
    /// The node has another marker than the one that they named.
    NotAdmitted,
    /// The server does not have the scripts.
    NoScript,
}

/// One thing to do. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
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
    Foreign { keys: Arc<[K]>, invalid: InvalidReply },
    /// An effect of the admission, other than a call.
    Admission(admission::Effect),
    /// A call has no answer for too long: close the connection.
    Overdue,
    /// The marker names another server, so the server of this connection changed: close it.
    AnotherServer(Marker),
    /// The server was flushed while the node waited for its admission: close the connection.
    Flushed,
    /// The connection was closed before the answer to this call.
    Lost(C),
}
