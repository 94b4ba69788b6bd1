//! Inputs and effects of an admission.

use crate::marker::{Marker, RunId};
use crate::op::Token;
use crate::seed::{Fences, Unseedable};
use crate::time::Time;

/// One input of an admission machine. Every request is answered, or the connection is dropped and `Disconnected`
/// follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A new connection has read the server's run id. The run id of an older connection must not be used.
    Connected(RunId),
    /// The connection is gone.
    Disconnected,
    /// The marker that observe or admit answered.
    Observed(Marker),
    /// A reply showed that the node's clock, or that of this process, jumped: no vote until [`Input::Steady`] or
    /// [`Input::Stepped`] says which. See [`crate::judge`].
    Doubted,
    /// The node's clock did not step.
    Steady,
    /// The node's clock stepped, or its server may have lost keys otherwise: its marker does not count.
    Stepped,
    /// A script answered that the marker is not the one under which this process votes.
    NotAdmitted,
    /// The answer to [`Effect::ListStatuses`].
    StatusesListed,
    /// The answer to [`Effect::ReadFences`]. `None` if the answer of this node does not count: they are read again.
    Fences(Option<Fences>),
    /// Time passed.
    Wake,
}

/// A call to the node, which answers the marker that it has then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Run observe: read the marker, and write a ticket, with 128 fresh random bits, if it does not name this server.
    Observe {
        /// The server of this connection.
        run_id: RunId,
        /// The marker that was there when the clock had stepped: it is replaced too.
        stepped: Option<Marker>,
    },
    /// Run admit.
    Admit {
        /// The ticket that the marker key must still hold.
        ticket: Marker,
        /// The marker that replaces it.
        marker: Marker,
        /// The least value of the node's fence from now on.
        seed: Token,
    },
}

impl Call {
    /// The server that must answer it.
    pub const fn run_id(&self) -> &RunId {
        match self {
            Self::Observe { run_id, .. } => run_id,
            Self::Admit { marker, .. } => marker.run_id(),
        }
    }
}

/// One thing to do for the node. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send this call. A marker is answered by [`Input::Observed`]; without one, the connection must end.
    Call(Call),
    /// Answer with [`Input::StatusesListed`] when the statuses of all leases were listed.
    ListStatuses {
        /// A list that began before this effect does not count. Otherwise any list does.
        again: bool,
    },
    /// Ask all nodes for their fences now: one read before the end of the wait may be lower than the token of a term that was
    /// confirmed meanwhile. Answer with [`Input::Fences`].
    ReadFences,
    /// The standing changed.
    Changed(Standing),
}

/// Whether the node has a vote, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Standing {
    /// No connection.
    Offline,
    /// Connected; the marker is not known yet.
    Observing,
    /// It is not known whether the node's clock or that of this process jumped.
    Doubted,
    /// The node waits for one longest lease.
    Quarantined { until: Time },
    /// The wait is over. The fences of the other nodes are being read, or could not be trusted.
    Seeding(Option<Unseedable>),
    /// The node votes.
    Admitted,
    /// The node's marker names another configuration. Only an administrator can correct that.
    Mismatch(Marker),
}
