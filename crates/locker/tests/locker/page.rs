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

const FILES: [&str; 10] =
    ["builder", "tls", "request", "retry", "guard", "renewals", "error", "node", "inspect", "locker"];

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

/// The public types, and their public methods, with their documentation.
fn documented<'a>(source: &'a str, exported: &[&str]) -> Vec<(&'a str, String)> {
    let (mut items, mut documentation, mut of) = (Vec::new(), String::new(), "");
    for line in source.split("#[cfg(test)]").next().unwrap().lines() {
        if let Some(text) = line.trim_start().strip_prefix("///") {
            documentation += text;
        } else if !line.trim_start().starts_with("#[") {
            let mut words =
                line.trim_start().split(['(', '<', ':', ' ']).filter(|word| !["const", "async"].contains(word));
            match (words.next(), words.next(), words.next()) {
                (Some("impl"), Some(name), Some("{")) => of = name,
                // A function beside the types is not public.
                (Some("}"), ..) if line == "}" => of = "",
                (Some("pub"), Some("fn"), Some(name)) if exported.contains(&of) => {
                    items.push((name, documentation.clone()));
                }
                (Some("pub"), Some("struct" | "enum" | "trait"), Some(name)) if exported.contains(&name) => {
                    items.push((name, documentation.clone()));
                }
                _ => {}
            }
            documentation.clear();
        }
    }
    items
}

/// Where the example is that of another item, the documentation says "See the example of".
#[test]
fn every_type_and_every_method_has_an_example() {
    let sources = FILES.iter().chain(&["observer"]).map(|file| read(&format!("crates/locker/src/{file}.rs")));
    let sources: Vec<String> = sources.collect();
    let lines = read("crates/locker/src/lib.rs");
    let uses = lines.lines().filter_map(|line| line.strip_prefix("pub use "));
    let exported: Vec<&str> = uses
        .flat_map(|names| names.split(|letter: char| !letter.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .collect();
    let items: Vec<(&str, String)> = sources.iter().flat_map(|source| documented(source, &exported)).collect();
    let code = |text: &str| text.split("```").skip(1).step_by(2).map(str::to_owned).collect::<String>();
    let is_shown = |(name, documentation): &(&str, String)| {
        let Some((_, link)) = documentation.split_once("See the example of [`") else {
            return !code(documentation).is_empty();
        };
        let item = link.split('`').next().unwrap().rsplit("::").next().unwrap();
        let is_type = name.starts_with(char::is_uppercase);
        let call = if is_type { (*name).to_owned() } else { format!("{name}(") };
        items.iter().any(|(other, documentation)| *other == item && code(documentation).contains(&call))
    };
    let without: Vec<&str> = items.iter().filter(|item| !is_shown(item)).map(|(name, _)| *name).collect();
    assert!(without.is_empty() && items.len() > 60, "of {} items, no example shows {without:?}", items.len());
}
