//! A real Kubernetes control plane on this machine. The kubelets of its nodes are simulated, or started by the caller.

mod access;
mod certificates;
mod faults;
mod kubectl;
mod kubelets;
mod plane;
mod pool;
mod reader;
mod restore;
mod servers;
mod watch;

pub use self::plane::{Components, ControlPlane};
pub use self::pool::PooledControlPlane;
pub use self::restore::Backup;
pub(crate) use self::servers::RealNodes;
pub use self::watch::{Watch, WatchEvent};
