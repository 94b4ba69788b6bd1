//! What can happen at an instant.

use std::cell::RefCell;
use std::rc::Rc;

use redislease_core::driver::Command;
use redislease_core::lease::Round;
use redislease_core::op::{Attempt, Holder, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Time;
use redislease_plan::plan::{Effect as Planned, Views, calls};

use crate::api::server::{ApiCall, Kind, Step};
use crate::chaos::fault::Fault;
use crate::redis::clock::Micros;
use crate::redis::link::{Address, Delivery};
use crate::redis::server::{Answer, Memory};

/// The views of one machine, for its reader.
pub type SharedViews = Rc<RefCell<Views>>;

/// An event at one instant.
#[derive(Clone, Debug)]
pub enum Event {
    // For a process that has run since this boot: a later one ignores it.
    Inside(usize, u32, Inside),
    // At a Redis server, at an API server.
    Arrive(Delivery),
    ApiArrive(Box<ApiCall>),
    // Everything else.
    Exit { process: usize, boot: u32 },
    Programs(ProgramStage),
    Left { process: usize, holder: Holder, since: Micros, life: Micros },
    Start(usize),
    Resume { process: usize, boot: u32 },
    Inject,
    Heal { epoch: u32, heal: Heal },
    Pod { cluster: usize, pod: u32, step: PodStep },
    PodComes { cluster: usize, place: usize },
    Fight { cluster: usize, place: usize, until: Micros },
    Replicas { cluster: usize, place: usize, changes: u32, run: bool },
    Snapshot,
    Recovery(Stage),
}

/// An event inside a process that runs.
#[derive(Clone, Debug)]
pub enum Inside {
    // From the Redis servers and their connections.
    Reply {
        to: Address,
        id: u64,
        answer: Answer,
    },
    Flush(Address),
    Reset(Address),
    Dial(Address),
    Vote {
        serial: u64,
        round: Round,
        node: Node,
        vote: Vote,
    },
    // From the API server.
    ApiReply {
        id: u64,
        answer: Box<calls::Answer>,
    },
    WatchOpen(Kind),
    WatchRenew,
    Watch(Kind, Box<Step>),
    WatchedWorkload {
        place: usize,
    },
    // From itself.
    Wake,
    Work,
    Order {
        uid: u32,
        order: Box<Planned>,
        views: SharedViews,
    },
    Mail {
        uid: u32,
    },
    QuorumRead,
    QuorumEdited,
    LeaderTurn,
    /// Clock offsets change without an event, so the status of the quorum is compared now and then.
    CompareQuorum,
    LossDue {
        serial: u64,
        uid: u32,
        attempt: Attempt,
    },
    StopDue {
        uid: u32,
        attempt: Attempt,
        object: u32,
    },
    Terminate,
    Program(ProgramStep),
}

/// The end of a fault.
#[derive(Clone, Debug)]
pub enum Heal {
    Server(usize, Memory, Fault),
    Continue(usize),
    CutTo(usize, usize),
    CutFrom(usize, usize),
    Isolate(usize),
    Api(usize),
    ApiCut(usize),
    Webhook(usize),
    Ready(usize, u32),
    Suspension(usize, usize),
    Recreate(usize, usize),
    Mutation(usize),
    Policy(usize),
    /// The cluster, and the fault of its quorum.
    Quorum(usize, Fault),
    Consent(usize, usize),
    Workload(usize, usize),
    Restored(usize),
    Orphaned(usize, usize),
}

/// A later step in the life of a pod.
#[derive(Clone, Copy, Debug)]
pub enum PodStep {
    /// It is scheduled, because it has no gate any more.
    Starts,
    /// Its processes have ended, and its kubelet reports this.
    Stops,
    /// Its Kubernetes node loses power.
    LosesPower,
    /// An administrator marks its Kubernetes node as out of service.
    NodeMarked,
    /// Its controller releases it or adopts it, because its label has changed.
    Owned,
    /// The object is removed.
    Leaves,
}

/// The steps of the recovery, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// All faults end.
    Heal,
    /// Wall clocks are synchronized, once every process has seen the steps.
    Clocks,
    /// I6: every lease is held. A holder is deleted and stops.
    Settled,
    /// I6: the next one holds, soon after the proof. That one is deleted by force.
    Released,
    /// I6: the next one holds, after the rest of the TTL. A lease is deleted.
    Expired,
    /// I7: nothing is left of it.
    Gone,
    /// I4 and the labels, once a second.
    Watch,
}

/// Something that a program does.
#[derive(Clone, Debug)]
pub enum ProgramStep {
    /// The task with this number requests a lock.
    Ask(u32),
    /// The lease gets a command.
    Command(u64, Command),
    /// The task is woken, because of a report or a deadline.
    Wake(u64),
    /// The program takes the lock. With the term that it had won, and when, on its clock.
    Take(u64, (Attempt, Time)),
    /// The program writes to what the lock protects, if it holds the lock.
    Write(u64),
    /// The program cancels its request, or releases its lock.
    LetGo(u64),
    /// The program drops its lock and leaves the keys.
    Abandon(u64),
    /// The thread of the leases closes the lease, because the program shuts down what its locks are taken with.
    ShutDown(u64),
    /// The task notices that.
    Closed(u64),
    /// The request must have been answered.
    Overdue(u64),
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub enum ProgramStage {
    /// All faults end, and all programs let go.
    Heal,
    /// Wall clocks are synchronized, once every process has seen the steps.
    Clocks,
    /// No keys are left. All tasks request the same key.
    Contest,
    /// All of them have had it.
    End,
}
