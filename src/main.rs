//! The `redislease` binary.

use std::process::ExitCode;

use redislease::cli::Cli;

fn main() -> ExitCode {
    match Cli::of_command_line(std::env::args_os()).run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
