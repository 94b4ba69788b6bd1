//! Runs the chart, the image and a workload on real nodes: `make e2e`.
//!
//!   e2e BINARY [ARCHIVE]   the operator's binary, and an OCI archive of its image; without one, an image is made of BINARY
//!
//! Exit code 3 means that the nodes, or pods on them, do not start on this machine; the last line says why. Nothing of
//! RedisLease has run until then.

mod faults;
mod gate;
#[path = "../demo/narrator.rs"]
mod narrator;
mod run;
mod setup;
mod story;
mod upkeep;

use std::{env, path::PathBuf, process::ExitCode};

use narrator::Narrator;
use redislease_lab::node::{Entered, Node, Sandbox};
use setup::{Impossible, Outcome, Parts};
use story::Story;

const IMPOSSIBLE: u8 = 3;

fn main() -> ExitCode {
    match Sandbox::enter() {
        Ok(Entered::Inside(sandbox)) => run(&sandbox),
        Ok(Entered::Ended(code)) => code,
        Ok(Entered::Impossible(reason)) => impossible(&reason),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn impossible(reason: &str) -> ExitCode {
    eprintln!("error: this machine cannot run a Kubernetes node: {reason}");
    ExitCode::from(IMPOSSIBLE)
}

fn run(sandbox: &Sandbox) -> ExitCode {
    let mut narrator = Narrator::new();
    let (nodes, parts) = match start(sandbox, &mut narrator) {
        Ok(started) => started,
        Err(error) if error.is::<Impossible>() => {
            eprintln!("\nerror: {error}\n");
            return impossible(error.to_string().lines().next().unwrap_or_default());
        }
        Err(error) => {
            eprintln!("\nerror: make e2e failed. {error}");
            return ExitCode::FAILURE;
        }
    };
    match tell(&nodes, parts, narrator) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: make e2e failed. {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(sandbox: &Sandbox, narrator: &mut Narrator) -> Outcome<(Vec<Node>, Parts)> {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let binary = args.next().ok_or("The first argument is the operator's binary: start this with `make e2e`.")?;
    setup::start(sandbox, &binary, args.next().as_deref(), narrator)
}

fn tell(nodes: &[Node], parts: Parts, narrator: Narrator) -> Outcome {
    let mut story = Story::new(nodes, parts, narrator)?;
    // Pods and the logs of the operator explain an unexpected result.
    story.tell().map_err(|error| format!("{error}\n{}", story.context()))?;
    story.end();
    Ok(())
}
