//! docs/flags.md, from the definitions of the command line.

use clap::{Command, CommandFactory as _};

use super::{assert_current, cell};
use crate::cli::Cli;

const HEAD: &str = "# Flags of the binary

<!-- Generated from the command line by `make docs`. -->

One binary has all subcommands. `redislease --help` and `redislease SUBCOMMAND --help` show the same as this page. Each flag can also
be set with an environment variable; a flag on the command line has precedence.

Linked or copied as `kubectl-redislease` into a folder in `PATH`, the binary is a plugin of kubectl: `kubectl redislease why LEASE` is
`redislease why LEASE`. [install.md](install.md#the-command-line) shows how.
";

fn page() -> String {
    let cli = Cli::command();
    let mut page = HEAD.to_owned();
    for command in cli.get_subcommands() {
        page += &section(command);
    }
    page
}

fn section(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let positional: Vec<String> = command
        .get_positionals()
        .filter(|argument| !argument.is_hide_set())
        .map(|argument| {
            let name = argument.get_id().as_str().to_uppercase();
            let separator = if argument.is_last_set() { " --" } else { "" };
            if argument.is_required_set() { format!("{separator} {name}") } else { format!("{separator} [{name}]") }
        })
        .collect();
    let about = if about.ends_with('.') { about } else { about + "." };
    let name = command.get_name();
    let mut text = format!("\n## {name}\n\n`redislease {name}{}`\n\n{about}\n", positional.concat());
    for argument in command.get_positionals().filter(|argument| !argument.is_hide_set()) {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        text += &format!("\n`{}`: {help}.\n", argument.get_id().as_str().to_uppercase());
    }
    text += "\n| flag | variable | default | description |\n|---|---|---|---|\n";
    for flag in command.get_arguments() {
        let (Some(long), Some(env)) = (flag.get_long(), flag.get_env().and_then(|env| env.to_str())) else { continue };
        let short = flag.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let default = match flag.get_default_values() {
            _ if !flag.get_action().takes_values() => "off".to_owned(),
            [] => "-".to_owned(),
            [value] if value.is_empty() => "empty".to_owned(),
            [value, ..] => format!("`{}`", value.to_string_lossy()),
        };
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<_> = flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        let values = if values.is_empty()
            || !flag.get_action().takes_values()
            || values.iter().all(|value| help.contains(value))
        {
            String::new()
        } else {
            format!(": {}", values.join(" or "))
        };
        text += &format!("| {short}`--{long}` | `{env}` | {default} | {} |\n", cell(&format!("{help}{values}")));
    }
    text
}

#[test]
fn page_of_flags_is_current() {
    assert_current("docs/flags.md", &page());
}
