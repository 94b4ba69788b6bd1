//! One process of the comparison: RedisLease's library or its lock layer, the raw limit, or rslock.
//!
//! ```text
//! peer library | library-drops | ours | raw | rslock       # requests on standard input, answers on standard output: one JSON object a line
//! ```
//! `bench/README.md` describes requests and answers.
#![allow(clippy::unwrap_used, reason = "a failed step ends the measurement")]

mod library;
mod ours;
mod protocol;
mod raw;
mod raw_connection;
mod rslock;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match std::env::args().nth(1).as_deref() {
        Some("ours") => {
            let mut ours = ours::Ours::default();
            // One thread, because the nodes have their own, where the leases and the cycles run.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            protocol::serve(|request| runtime.block_on(ours.answer(request)));
        }
        Some(name @ ("library" | "library-drops")) => {
            let mut library = library::Library::default();
            library.drops = name == "library-drops";
            protocol::serve(|request| runtime.block_on(library.answer(request)));
        }
        Some("raw") => protocol::serve(|request| raw::answer(&request)),
        Some("rslock") => {
            let mut managers = rslock::Managers::default();
            protocol::serve(|request| runtime.block_on(managers.answer(request)));
        }
        other => {
            eprintln!("error: `{other:?}` is not one of library, library-drops, ours, raw, rslock");
            std::process::exit(2);
        }
    }
}
