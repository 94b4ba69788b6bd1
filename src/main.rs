//! The `redislease` binary.

use std::process::ExitCode;

use redislease::cli::{self, Cli};
use tikv_jemallocator::Jemalloc;

/// glibc would keep a quarter more memory after a start or an outage of thousands of leases (docs/measurements.md).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // `redislease run` starts this program again as its helper processes.
    if let Some(code) = redislease_run::helper(std::env::args_os()) {
        return code;
    }
    match Cli::of_command_line(std::env::args_os()).run() {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(&*error);
            ExitCode::FAILURE
        }
    }
}
