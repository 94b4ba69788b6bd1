//! Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader [DIRECTORY OF THE VOLUME]

fn main() {
    let volume = std::env::args().nth(1).unwrap_or_else(|| "/lease".into());
    // The kubelet replaces ..data as a whole: both files of one version belong together.
    let version = std::fs::canonicalize(volume + "/..data").unwrap_or_else(|_| std::process::exit(1));
    let read = |name| std::fs::read_to_string(version.join(name)).unwrap_or_default();
    match (read("role").as_str(), read("token").as_str()) {
        ("active", token) if !token.is_empty() => println!("{token}"),
        _ => std::process::exit(1),
    }
}
