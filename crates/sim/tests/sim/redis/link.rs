//! Connections between operators and Redis masters, and what travels on them.

use std::sync::Arc;

use redislease_core::admission;
use redislease_core::lease::Round;
use redislease_core::marker::Marker;
use redislease_core::op::Op;
use redislease_core::wire::{self, Terms};

use crate::chaos::fault::Fault;
use crate::redis::clock::Micros;

/// The wire of a process to one node.
pub type Wire = wire::Wire<u8, Ticket, Own>;

/// One connection of one start of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub process: usize,
    pub boot: u32,
    pub node: usize,
    pub conn: u32,
}

/// How many faults cut each direction at present.
#[derive(Clone, Copy, Default)]
pub struct Link {
    pub cut_to: u32,
    pub cut_from: u32,
    /// Both directions, together with those to every other node.
    pub isolated: u32,
}

impl Link {
    /// The fault by which a request does not reach its node.
    pub fn lost_to(self) -> Option<Fault> {
        (self.isolated > 0).then_some(Fault::Isolate).or((self.cut_to > 0).then_some(Fault::CutTo))
    }

    /// The fault by which an answer does not reach its process.
    pub fn lost_from(self) -> Option<Fault> {
        (self.isolated > 0).then_some(Fault::Isolate).or((self.cut_from > 0).then_some(Fault::CutFrom))
    }
}

/// Whose vote it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The number of the request in the run, in the order in which requests are given to wires.
    pub number: u64,
    pub serial: u64,
    pub round: Round,
    pub release: bool,
}

/// A call that is not for votes or for the admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// The first call of a connection. The scripts are loaded with it.
    Info,
    /// For the admission of this node, or to read the clock only.
    Fence(Option<usize>),
    Load,
}

/// A call on its way to, or queued in, a server.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub from: Address,
    pub incarnation: u32,
    pub id: u64,
    pub call: Call,
    /// Of the ticket that it writes.
    pub nonce: u128,
    pub repeat: bool,
}

/// A call on a connection.
#[derive(Clone, Debug)]
pub enum Call {
    Info,
    Load,
    /// With the marker under our configuration.
    Fence(Marker),
    Admission(admission::Call),
    Batch(Batch),
}

/// Requests for votes.
#[derive(Clone, Debug)]
pub struct Batch {
    pub requests: Vec<(Arc<[u8]>, Op)>,
    pub terms: Option<Terms>,
    /// The numbers of the requests and the leases that they are about; `None` if nobody waits for the vote any more.
    pub asked: Vec<Option<(u64, u64)>>,
}

impl Call {
    /// Whether it can change the server.
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Admission(_) | Self::Batch(_))
    }

    /// Whether the server executes it with a script.
    pub const fn needs_scripts(&self) -> bool {
        !matches!(self, Self::Info | Self::Load)
    }
}

pub struct Conn {
    pub number: u32,
    pub incarnation: u32,
    pub ready: bool,
    /// Whether the requests that arrive now are sent soon.
    pub flushes: bool,
    /// The server has lost its scripts since it was opened.
    pub lost_scripts: bool,
    pub last_to: Micros,
    pub last_from: Micros,
}
