//! The ways in which the lock is lost.

use crate::worker;

/// How the program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Directly,
    /// As the first process of a PID namespace, as in a container.
    Pid1,
    /// On a terminal.
    Terminal,
    /// With the environment that cron gives.
    Cron,
    /// As the first process of a real container.
    Container,
    /// Without privileges.
    User,
}

/// What the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One process.
    Single,
    /// A shell that waits for it.
    Shell,
    /// Two background processes, one of them in a session of its own, and a pipeline.
    Forks,
}

impl Shape {
    /// The command line. Every process ignores SIGTERM.
    pub fn command(self) -> [String; 3] {
        let worker = worker::shell();
        let script = match self {
            Self::Single => format!("trap '' TERM; exec {worker}"),
            Self::Shell => format!("trap '' TERM; {worker}; true"),
            Self::Forks => format!("trap '' TERM; {worker} & setsid {worker} & {worker} | cat; wait"),
        };
        ["sh".into(), "-c".into(), script]
    }
}

/// How the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    StopRun,
    StopGuard,
    StopBoth,
    /// The test does this for all locks.
    StopServers,
    /// Nothing that the first program sends arrives, and no answer. The second one has its connections.
    CutNetwork,
    /// The connections of the first program are reset, again and again.
    ResetNetwork,
    DeleteKeys,
    /// The machine of the first program is suspended for longer than the lock lives.
    Suspend,
}

/// One kind of loss.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub isolate: &'static str,
    pub place: Place,
    pub shape: Shape,
    pub fault: Fault,
    /// Whether two commands can run at the same time in this case, as docs/run.md says. The store rejects the writes of the first.
    pub can_overlap: bool,
}

impl Case {
    const fn new(name: &'static str, isolate: &'static str, shape: Shape, fault: Fault) -> Self {
        Self { name, isolate, place: Place::Directly, shape, fault, can_overlap: false }
    }

    const fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    const fn can_overlap(mut self) -> Self {
        self.can_overlap = true;
        self
    }
}

pub const CASES: [Case; 26] = [
    Case::new("pid, run stopped", "pid", Shape::Single, Fault::StopRun),
    Case::new("pid, guard stopped", "pid", Shape::Single, Fault::StopGuard),
    Case::new("pid, both stopped", "pid", Shape::Single, Fault::StopBoth),
    Case::new("pid, servers stopped", "pid", Shape::Single, Fault::StopServers),
    Case::new("pid, network cut", "pid", Shape::Single, Fault::CutNetwork),
    Case::new("pid, both stopped, forks", "pid", Shape::Forks, Fault::StopBoth),
    Case::new("pid, servers stopped, forks", "pid", Shape::Forks, Fault::StopServers),
    Case::new("pid, both stopped, user", "pid", Shape::Forks, Fault::StopBoth).at(Place::User),
    Case::new("pid, both stopped, PID 1", "pid", Shape::Shell, Fault::StopBoth).at(Place::Pid1),
    Case::new("pid, both stopped, tty", "pid", Shape::Shell, Fault::StopBoth).at(Place::Terminal),
    Case::new("pid, both stopped, cron", "auto", Shape::Shell, Fault::StopBoth).at(Place::Cron),
    Case::new("pid, suspended", "pid", Shape::Single, Fault::Suspend),
    Case::new("none, suspended", "none", Shape::Single, Fault::Suspend),
    Case::new("none, both stopped", "none", Shape::Single, Fault::StopBoth),
    Case::new("none, run stopped", "none", Shape::Single, Fault::StopRun),
    Case::new("none, guard stopped, forks", "none", Shape::Forks, Fault::StopGuard),
    Case::new("none, servers stopped, forks", "none", Shape::Forks, Fault::StopServers),
    Case::new("none, network cut", "none", Shape::Single, Fault::CutNetwork),
    Case::new("none, network reset, forks", "none", Shape::Forks, Fault::ResetNetwork),
    Case::new("none, guard stopped, user", "none", Shape::Forks, Fault::StopGuard).at(Place::User),
    Case::new("none, guard stopped, tty", "none", Shape::Forks, Fault::StopGuard).at(Place::Terminal),
    Case::new("none, guard stopped, cron", "none", Shape::Forks, Fault::StopGuard).at(Place::Cron),
    Case::new("none, guard stopped, PID 1", "none", Shape::Forks, Fault::StopGuard).at(Place::Pid1),
    Case::new("none, guard stopped, container", "auto", Shape::Forks, Fault::StopGuard).at(Place::Container),
    // Only the command itself ends with the guard, and `run` cannot kill the rest.
    Case::new("none, both stopped, shell", "none", Shape::Shell, Fault::StopBoth).can_overlap(),
    // An administrator gives the lock away before `run` can know it.
    Case::new("pid, keys deleted", "pid", Shape::Single, Fault::DeleteKeys).can_overlap(),
];
