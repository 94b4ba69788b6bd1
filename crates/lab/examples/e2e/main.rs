//! Runs the chart, the image and a workload on real nodes: `make e2e`.
//!
//!   e2e BINARY [ARCHIVE]   the operator's binary, and an OCI archive of its image; without one, an image is made of BINARY
//!
//! Exit code 3 means that this machine cannot run a node; the reason is the last line.

mod faults;
#[path = "../demo/narrator.rs"]
mod narrator;
mod setup;
mod story;
mod upkeep;

use std::{env, path::PathBuf, process::ExitCode};

use narrator::Narrator;
use redislease_lab::node::{Entered, Sandbox};
use story::{Outcome, Story};

const IMPOSSIBLE: u8 = 3;

fn main() -> ExitCode {
    match Sandbox::enter() {
        Ok(Entered::Inside(sandbox)) => match run(&sandbox) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("\nerror: make e2e failed. {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Entered::Ended(code)) => code,
        Ok(Entered::Impossible(reason)) => {
            eprintln!("error: this machine cannot run a Kubernetes node: {reason}");
            ExitCode::from(IMPOSSIBLE)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(sandbox: &Sandbox) -> Outcome {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let binary = args.next().ok_or("The first argument is the operator's binary: start this with `make e2e`.")?;
    let mut narrator = Narrator::new();
    let (nodes, parts) = setup::start(sandbox, &binary, args.next().as_deref(), &mut narrator)?;
    let mut story = Story::install(&nodes, parts, narrator)?;
    // The logs of the operator's pods explain an unexpected result.
    if let Err(error) = story.tell() {
        return Err(format!("{error}\n{}", story.context()).into());
    }
    story.end();
    Ok(())
}
