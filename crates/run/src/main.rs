//! `redislease-run`: the command `redislease run` in a program of its own, for machines without Kubernetes.

use std::process::ExitCode;

use clap::Parser;
use redislease_run::{RunOptions, USAGE};

#[derive(Debug, Parser)]
#[command(name = "redislease-run", version)]
struct Cli {
    #[command(flatten)]
    options: RunOptions,
}

fn main() -> ExitCode {
    if let Some(code) = redislease_run::helper(std::env::args_os()) {
        return code;
    }
    // A line that was written for `redislease run` works too.
    let arguments =
        std::env::args_os().enumerate().filter(|(at, word)| *at != 1 || word != "run").map(|(_, word)| word);
    match Cli::try_parse_from(arguments) {
        Ok(cli) => redislease_run::run(cli.options),
        Err(error) => {
            // Help and the version are printed to standard output, errors to standard error.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
        }
    }
}
