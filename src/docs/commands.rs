//! Checks that the commands of the binary in the pages exist, with their flags.

use clap::{CommandFactory as _, Parser as _};

use super::{pages, read};
use crate::cli::Cli;

/// The commands of the binary in the blocks of a page.
fn commands(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let lines = blocks.flat_map(|(_, block)| block.lines()).map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let ours =
        lines.filter_map(|line| line.strip_prefix("kubectl redislease ").or_else(|| line.strip_prefix("redislease ")));
    ours.map(|line| {
        let command = line.split(['#', '|', '>']).next().unwrap_or_default().replace("NAMESPACE", "namespace");
        command.split_whitespace().map(str::to_owned).collect()
    })
    .collect()
}

#[test]
fn commands_in_the_pages_can_be_parsed() {
    let mut seen = 0;
    for page in pages() {
        for command in commands(&read(&page)) {
            seen += 1;
            let line = ["redislease".to_owned()].into_iter().chain(command.iter().cloned());
            if let Err(error) = Cli::try_parse_from(line) {
                panic!("{}: `redislease {}`: {error}", page.display(), command.join(" "));
            }
        }
    }
    assert!(seen > 3, "only {seen} commands were found");
}

#[test]
fn wrong_commands_are_found() {
    let page = "text\n```sh\n$ redislease why billing --absent  # comment\nkubectl get rl\n```\n";
    let [command] = &commands(page)[..] else { panic!("{:?}", commands(page)) };
    assert_eq!(command.join(" "), "why billing --absent");
    let line = ["redislease".to_owned()].into_iter().chain(command.iter().cloned());
    assert!(Cli::command().try_get_matches_from(line).is_err());
}
