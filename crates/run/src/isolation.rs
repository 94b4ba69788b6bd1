//! What contains the processes of the command.

use serde::{Deserialize, Serialize};

/// What contains the processes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// A PID namespace.
    Pid,
    /// A PID namespace in a user namespace, which needs no privileges.
    PidInUser,
    /// A process group. The kernel kills only the command itself.
    None,
}

impl Isolation {
    pub const fn has_namespace(self) -> bool {
        !matches!(self, Self::None)
    }

    pub const fn describe(self) -> &'static str {
        match self {
            Self::Pid => "pid: a PID namespace; the kernel kills every process of the command at the deadline",
            Self::PidInUser => {
                "pid: a PID namespace in a user namespace; the kernel kills every process of the command at the deadline"
            }
            Self::None => {
                "none: the kernel kills only the command itself at the deadline; its other processes are killed while this \
                 program runs"
            }
        }
    }
}

/// The value of `--isolate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The strongest that is allowed.
    Auto,
    /// A PID namespace.
    Pid,
    /// A process group.
    None,
}

impl Choice {
    /// What is tried, the strongest first.
    pub const fn candidates(self) -> &'static [Isolation] {
        match self {
            Self::Auto => &[Isolation::Pid, Isolation::PidInUser, Isolation::None],
            Self::Pid => &[Isolation::Pid, Isolation::PidInUser],
            Self::None => &[Isolation::None],
        }
    }
}
