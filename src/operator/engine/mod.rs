//! The engine in a process: one task gives inputs and turns to [`redislease_plan::engine::Engine`], which decides, and carries out
//! its effects. Nothing here waits. A panic in a turn or in an effect affects only its lease.

mod driver;
mod run;
mod shell;

pub use driver::{Driver, Message};
pub use run::{channels, run};
pub use shell::{CONTROLLER, Shell};
