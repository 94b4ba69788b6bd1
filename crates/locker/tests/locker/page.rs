//! `docs/lock.md` shows what the crate has.

fn read(path: &str) -> String {
    std::fs::read_to_string(redislease_lab::repository().join(path)).unwrap()
}

/// The documentation tests compile both. The first test makes their calls.
#[test]
fn the_page_shows_the_example_of_the_crate() {
    let page = read("docs/lock.md");
    let program = page.split_once("```rust,no_run\n").unwrap().1.split_once("```").unwrap().0;
    let lines = read("crates/locker/src/lib.rs");
    let lines = lines.lines().filter_map(|line| line.strip_prefix("//!"));
    let example: String = lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    assert!(program.contains("fn main()") && example.contains(program), "{program}");
}

/// The names of the public methods, and of the variants of the enums, of a source file.
fn public(source: &str) -> Vec<&str> {
    let public = source.split("#[cfg(test)]").next().unwrap().lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let method = ["pub fn ", "pub const fn ", "pub async fn "].iter().find_map(|start| line.strip_prefix(start));
        let text = method.unwrap_or(line);
        let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        let (name, rest) = text.split_at(end);
        let is_variant = name.starts_with(char::is_uppercase) && (rest == "," || rest == " {" || rest.ends_with("),"));
        (method.is_some() || is_variant).then_some(name)
    });
    public.collect()
}

const FILES: [&str; 9] = ["builder", "request", "retry", "guard", "renewals", "error", "node", "inspect", "locker"];

/// The last column of each table says what to write here.
#[test]
fn each_call_for_those_who_come_from_another_lock_exists() {
    let sources: Vec<String> = FILES.iter().map(|file| read(&format!("crates/locker/src/{file}.rs"))).collect();
    let known: Vec<&str> = sources.iter().flat_map(|source| public(source)).collect();
    let page = read("docs/coming-from.md");
    let cells = page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    let mut found = 0;
    for code in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        for before in code.split('(').rev().skip(1) {
            let call = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap();
            // `Duration` is not of this crate.
            if !call.is_empty() && !["from_secs"].contains(&call) {
                assert!(known.contains(&call), "{call} in `{code}`");
                found += 1;
            }
        }
    }
    assert!(found > 40, "{found} calls");
}

#[test]
fn the_page_names_every_method_and_result() {
    let page = read("docs/lock.md");
    let is_named = |name: &str| page.contains(&format!("`{name}")) || page.contains(&format!("::{name}("));
    let mut missing = Vec::new();
    for file in FILES {
        let source = read(&format!("crates/locker/src/{file}.rs"));
        // Before the implementation is a type that is not public.
        let source = if file == "locker" { source.split_once("impl Locker {").unwrap().1 } else { &source };
        let names = public(source);
        assert!(!names.is_empty(), "{file}");
        missing.extend(names.into_iter().filter(|name| !is_named(name)).map(str::to_owned));
    }
    assert!(missing.is_empty(), "docs/lock.md does not name {missing:?}");
}
