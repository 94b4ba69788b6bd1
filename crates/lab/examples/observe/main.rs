//! Checks the chart's dashboard and alerts with real data: `make observe`.
//!
//! A real Prometheus scrapes two replicas of the operator, on a real control plane and real Redis servers, while leases
//! change their holders and servers fail. Then every query of every panel, variable, annotation and alert is evaluated.
//! The exit code is 0 if each query returns data and uses existing metrics, and no operator is busy without a reason; 2
//! if not; 1 if the run failed.
//!
//! The arguments are the operator's binary, and a folder for the panels' data, from which pictures can be drawn.

mod board;
mod check;
mod story;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use redislease_lab::{Installation, InstallationOptions, Prometheus, Range, unix_time};

use crate::{
    board::Board,
    check::Check,
    story::{CLUSTER, Story},
};

/// Seconds between two points of a panel: short enough to include every fault of the run.
const STEP: f64 = 2.0;

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

fn run() -> Result<bool, Box<dyn Error>> {
    let argument =
        |index: usize, default: &str| env::args_os().nth(index).map_or_else(|| default.into(), PathBuf::from);
    let (binary, output) = (argument(1, "target/debug/redislease"), argument(2, "target/observe"));
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/redislease/files");
    let board = Board::read(&files.join("dashboard.json"))?;
    let prometheus = Prometheus::start(&files.join("alerts.yaml"))?;
    let options = InstallationOptions { cluster: CLUSTER.to_owned(), ..InstallationOptions::new(binary) };
    let installation = Installation::start(&options)?;
    let mut story = Story::start(&installation, &prometheus)?;
    let from = unix_time().as_secs_f64();
    story.run()?;
    let range = Range { from, until: unix_time().as_secs_f64(), step: STEP };
    println!("\n{:.0} s of data; evaluate all queries ...\n", range.until - range.from);
    let mut check = Check::new(&prometheus, &board, range)?;
    check.variables();
    check.panels();
    check.annotations();
    check.load();
    check.alerts(&story::ALERTS)?;
    fs::create_dir_all(&output)?;
    let data = output.join("data.json");
    fs::write(&data, check.data().to_string())?;
    let met = check.report();
    println!("\nThe data of the panels is in {}.", data.display());
    Ok(met)
}
