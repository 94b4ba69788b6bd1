//! Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader [DIRECTORY OF THE VOLUME]

use std::{env, fs, path::Path, process};

fn token(volume: &Path) -> Option<String> {
    // The kubelet replaces ..data as a whole: both files of one version belong together.
    let version = fs::read_link(volume.join("..data")).ok()?;
    let read = |name| fs::read_to_string(volume.join(&version).join(name));
    match (read("role"), read("token")) {
        (Ok(role), Ok(token)) => Some(token).filter(|token| role == "active" && !token.is_empty()),
        _ if fs::read_link(volume.join("..data")).ok()? != version => token(volume),
        _ => None,
    }
}

fn main() {
    let volume = env::args().nth(1).unwrap_or_else(|| "/lease".into());
    match token(Path::new(&volume)) {
        Some(token) => println!("{token}"),
        None => process::exit(1),
    }
}
