//! Measures the cost and recovery time of many leases on this machine: `make scale N=1000`.
//!
//! The environment configures the run: N (leases), PHASES (a list such as `start,hold`), KEEP (keeps everything running).
//! The first argument is the operator's binary. The exit code is 0 if every goal is met, 2 if one is missed or could not
//! be measured, 1 if the run could not start.

use std::{env, process::ExitCode};

use redislease_lab::scale::{self, Options, Phase};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let binary = env::args_os().nth(1).unwrap_or_else(|| "target/release/redislease".into());
    let leases = variable("N").map_or(Ok(1000), |number| number.parse())?;
    let mut options = Options::new(binary, leases);
    if let Some(phases) = variable("PHASES") {
        options.phases = phases.split(',').map(|phase| phase.trim().parse::<Phase>()).collect::<Result<_, _>>()?;
    }
    let report = scale::run(&options, |report| {
        println!("{report}");
        if variable("KEEP").is_some() {
            eprintln!("everything keeps running; Ctrl-C or `kill {}` stops it", std::process::id());
            redislease_lab::keep_running()
        }
    })?;
    Ok(report.is_met())
}

/// A non-empty variable of the environment.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
