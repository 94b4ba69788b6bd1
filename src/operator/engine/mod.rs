//! The engine in a process: one task gives inputs and turns to [`redislease_plan::engine::Engine`], which decides, and carries out
//! its effects. Nothing here waits. A panic in a turn or in an effect affects only its lease.
//!
//! | module | concept |
//! |---|---|
//! | [`driver`] | gives inputs and turns to the engine |
//! | [`message`] | what the other tasks send |
//! | [`shell`] | carries out effects in a process: keepers, writer, metrics |
//! | [`watcher`] | passes the reports of a keeper's machine to the shell and to the metrics |
//! | [`run`] | the task |

mod driver;
mod message;
mod run;
mod shell;
mod watcher;

pub use driver::Driver;
pub use message::Message;
pub use run::{channels, run};
pub use shell::{CONTROLLER, Shell};
