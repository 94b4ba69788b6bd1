//! try
use redislease_lab::{Error, node::{Cluster, Entered, Sandbox}};
fn main() -> std::process::ExitCode {
    match Sandbox::enter().expect("enter") {
        Entered::Ended(code) => code,
        Entered::Impossible(why) => { println!("{why}"); 3.into() }
        Entered::Inside(sandbox) => {
            let began = std::time::Instant::now();
            let cluster = Cluster::start(&sandbox, 2);
            match cluster {
                Err(error) => { println!("{error}"); let _ = std::process::Command::new("sh").args(["-c", "ls -R $TMPDIR | head -50; tail -n 40 $TMPDIR/node-*/*.log"]).status(); 1.into() }
                Ok(cluster) => {
                    println!("ready after {:?}", began.elapsed());
                    println!("{}", cluster.control_plane().kubectl(&["get", "nodes", "-o", "wide"]).unwrap_or_else(|e: Error| e.to_string()));
                    0.into()
                }
            }
        }
    }
}
