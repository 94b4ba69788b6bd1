//! `redislease-run`: the command `redislease run` in a program of its own, for machines without Kubernetes.

use std::process::ExitCode;

use clap::Parser;
use redislease_run::{RunOptions, USAGE};

#[derive(Debug, Parser)]
#[command(name = "redislease-run", version, about, long_about = None)]
struct Cli {
    #[command(flatten)]
    options: RunOptions,
}

fn main() -> ExitCode {
    if let Some(code) = redislease_run::helper(std::env::args_os()) {
        return code;
    }
    match Cli::try_parse() {
        Ok(cli) => redislease_run::run(cli.options),
        Err(error) => {
            // Help and the version are printed to standard output, errors to standard error.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
        }
    }
}
