//! `run` on a terminal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Running, Servers, child_of};

/// Runs a line of a shell on a terminal, for at most 60 s. `script` stops itself when its child is stopped, and a stopped process ends only
/// with SIGKILL. A test that runs in the background ignores interrupts, and so would the command.
fn terminal(line: &str) -> Command {
    let mut script = Command::new("timeout");
    script.args(["--foreground", "--signal=KILL", "60", "env", "--default-signal=INT", "script"]);
    script.args(["--quiet", "--flush", "--command", line, "/dev/null"]);
    script
}

/// The same with a keyboard, and with the lines that appear on the terminal.
fn with_keyboard(line: &str) -> (Running, ChildStdin, impl Iterator<Item = String> + use<>) {
    let mut running = Running::of(terminal(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let keyboard = running.child.stdin.take().unwrap();
    let lines = BufReader::new(running.child.stdout.take().unwrap()).lines().map_while(Result::ok);
    (running, keyboard, lines)
}

#[test]
fn on_a_terminal_the_command_is_the_foreground_group_and_ctrl_c_reaches_only_it() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        let text = "trap 'echo interrupted; exit 4' INT; [ -t 0 ] && ps -o stat= -p $$; while :; do sleep 0.05; done";
        let run = servers.run(&["--lease", "test/tty", "-q", "--isolate", isolate], &["sh", "-c", text]);
        let line = format!("{}; echo code $?; ps -o tpgid=,pgid= -p $$", run.line());
        let (mut running, mut keyboard, mut lines) = with_keyboard(&line);
        let state = lines.next().unwrap();
        assert!(state.contains('+'), "{isolate}: not in the foreground: {state}");
        keyboard.write_all(b"\x03").unwrap();
        let rest: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("code")).collect();
        assert!(rest.iter().any(|line| line.ends_with("interrupted")), "{rest:?}");
        let groups = lines.next().unwrap();
        let groups: Vec<&str> = groups.split_whitespace().collect();
        assert_eq!(groups[0], groups[1], "the shell has the terminal again");
        drop(keyboard);
        running.wait();
    }
}

#[test]
fn a_ctrl_z_does_not_suspend_a_command_that_holds_the_lock() {
    let servers = Servers::start();
    let text = "echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; echo done";
    let run = servers.run(&["--lease", "test/tty"], &["sh", "-c", text]);
    let (mut running, mut keyboard, mut lines) = with_keyboard(&run.line());
    assert!(lines.any(|line| line == "ready"));
    // At many moments: a shell that starts a program is two processes, and each of them must ignore it.
    let typed = std::thread::spawn(move || {
        for _ in 0..60 {
            // The terminal is closed when the command has ended.
            let _ = keyboard.write_all(b"\x1a");
            std::thread::sleep(std::time::Duration::from_millis(15));
        }
    });
    let rest: Vec<String> = lines.collect();
    typed.join().unwrap();
    assert!(rest.iter().any(|line| line.ends_with("done")), "{rest:?}");
    running.wait();
}

/// The command must not start after it, also if the hook handles it.
#[test]
fn ctrl_c_during_the_hook_keeps_the_command_from_starting() {
    let servers = Servers::start();
    for (isolate, code) in [("pid", 0), ("pid", 130), ("none", 0), ("none", 130)] {
        let hook = format!("trap 'exit {code}' INT; echo hook; while :; do sleep 0.05; done");
        let options = ["--lease", "test/hook-tty", "--isolate", isolate, "--on-acquire", &hook];
        let run = servers.run(&options, &["echo", "started"]);
        // Ctrl-C reaches this shell too. What it handles is at its default in the programs that it starts.
        let (mut running, mut keyboard, mut lines) =
            with_keyboard(&format!("trap : INT; {}; echo code $?", run.line()));
        assert!(lines.any(|line| line == "hook"));
        keyboard.write_all(b"\x03").unwrap();
        let rest: Vec<String> = lines.collect();
        assert!(rest.iter().any(|line| line == "code 130"), "{isolate}, {code}: {rest:?}");
        assert!(!rest.iter().any(|line| line.ends_with("started")), "{isolate}, {code}: {rest:?}");
        drop(keyboard);
        running.wait();
    }
}

/// In the background of the terminal, it would be stopped while the lock stays held.
#[test]
fn a_hook_on_a_terminal_can_write_to_it_and_reads_nothing_from_it() {
    let servers = Servers::start();
    let hook = "stty tostop < /dev/tty; echo hook; read line < /dev/tty || echo nothing";
    let run = servers.run(&["--lease", "test/hook-tty", "-q", "--on-acquire", hook], &["true"]);
    let (mut running, _keyboard, lines) = with_keyboard(&format!("{}; echo code $?", run.line()));
    let lines: Vec<String> = lines.collect();
    for line in ["hook", "nothing", "code 0"] {
        assert!(lines.iter().any(|found| found == line), "no {line}: {lines:?}");
    }
    running.wait();
}

/// It would be stopped without a word, and killed after 30 s.
#[test]
fn the_hook_of_a_loss_can_write_to_the_terminal_too() {
    let servers = Servers::short();
    let hook = "stty tostop < /dev/tty; echo hook; read line < /dev/tty || echo nothing";
    let run =
        servers.run(&["--lease", "test/lost-tty", "-q", "--on-lost", hook], &["sh", "-c", "echo ready; sleep 600"]);
    let (mut running, _keyboard, mut lines) = with_keyboard(&format!("{}; echo code $?", run.line()));
    assert!(lines.any(|line| line == "ready"));
    servers.delete("test/lost-tty");
    let lines: Vec<String> = lines.collect();
    for line in ["hook", "nothing", "code 76"] {
        assert!(lines.iter().any(|found| found == line), "no {line}: {lines:?}");
    }
    running.wait();
}

#[test]
fn a_ctrl_z_during_the_hook_does_nothing() {
    let servers = Servers::start();
    let hook = "echo hook; sleep 1";
    let options = ["--lease", "test/hook-tty", "-q", "--on-acquire", hook];
    let run = servers.run(&options, &["sh", "-c", "ps -o stat= -p $$"]);
    // A shell above would be suspended.
    let (mut running, mut keyboard, mut lines) = with_keyboard(&format!("exec {}", run.line()));
    assert!(lines.any(|line| line == "hook"));
    keyboard.write_all(b"\x1a").unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains('+')), "the command is not in the foreground: {rest:?}");
    drop(keyboard);
    running.wait();
}

/// A command that is killed cannot do it, and the user would type without an echo.
#[test]
fn after_a_loss_the_terminal_has_its_modes_again() {
    let servers = Servers::start();
    for (isolate, kills_guard) in [("pid", false), ("none", false), ("pid", true), ("none", true)] {
        // The end of many processes takes longer than that of the guard.
        let text = "stty -echo -icanon; for i in $(seq 200); do sleep 600 & done; echo ready; sleep 600";
        let lease = format!("test/modes-{isolate}-{kills_guard}");
        let run = servers.run(&["--lease", &lease, "-q", "--isolate", isolate], &["sh", "-c", text]);
        let line = format!("{}; echo code $?; stty -a", run.line());
        let (mut running, _keyboard, mut lines) = with_keyboard(&line);
        assert!(lines.any(|line| line == "ready"));
        if kills_guard {
            let is_guard = |pid: &Pid| {
                let name = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
                name.is_ok_and(|name| name.trim() == "run-guard")
            };
            let mut below = std::iter::successors(Some(running.pid()), |pid| child_of(*pid));
            kill_process(below.find(is_guard).unwrap(), Signal::KILL).unwrap();
        } else {
            servers.delete(&lease);
        }
        let rest: Vec<String> = lines.collect();
        assert!(rest.iter().any(|line| line.trim() == "code 76"), "{rest:?}");
        let has = |mode: &str| rest.iter().any(|line| line.split_whitespace().any(|word| word == mode));
        assert!(has("echo") && has("icanon"), "{isolate}, {kills_guard}: {rest:?}");
        running.wait();
    }
}

/// A shell takes the terminal back when `run` is stopped, and gives it to the next program. `run` neither takes it back from that one nor
/// gives it to a command that starts then.
#[test]
fn another_program_that_has_the_terminal_keeps_it() {
    let servers = Servers::start();
    for isolate in ["pid", "none"] {
        for stops_in_hook in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let [pid, stop, next] = ["pid", "stop", "next"].map(|name| folder.path().join(name).display().to_string());
            let until = |file: &str| format!("until [ -e {file} ]; do sleep 0.05; done");
            let stops = format!("echo > {stop}; {}", until(&next));
            let (hook, text) = if stops_in_hook { (&*stops, "sleep 6") } else { ("true", &*stops) };
            let options = ["--lease", "test/tty", "-q", "--isolate", isolate, "--on-acquire", hook];
            let run = servers.run(&options, &["sh", "-c", text]).line();
            let script = folder.path().join("script");
            let lines = [
                "set -m".to_owned(),
                format!("({}; kill -STOP $(cat {pid}); {}; kill -CONT $(cat {pid})) &", until(&stop), until(&next)),
                format!("sh -c 'echo $$ > {pid}; exec \"$@\"' sh {run}"),
                format!("sh -c 'echo > {next}; sleep 3; echo groups $(ps -o tpgid=,pgid= -p $$)'"),
                "wait".to_owned(),
                format!("kill -0 $(cat {pid}) || echo ended"),
            ];
            std::fs::write(&script, lines.join("\n")).unwrap();
            let output = terminal(&format!("bash {}", script.display())).output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let groups = output.lines().find_map(|line| line.trim().strip_prefix("groups ")).expect(&output);
            let groups: Vec<&str> = groups.split_whitespace().collect();
            assert_eq!(groups[0], groups[1], "{isolate}, {stops_in_hook}: {output}");
            assert!(output.contains("ended"), "{isolate}, {stops_in_hook}: {output}");
        }
    }
}

/// A shell that continues it with `fg` gives the terminal to `run`, and Ctrl-Z reaches it.
#[test]
fn a_run_that_holds_the_lock_is_not_suspended() {
    let servers = Servers::short();
    let mut run = servers.run(&["--lease", "test/tstp", "-q"], &["sh", "-c", "echo ready; sleep 4"]);
    let mut running = Running::of(run.0.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "ready"));
    running.signal(Signal::TSTP);
    assert_eq!(running.wait().code(), Some(0), "it renews the lock");
}

/// Nobody else can do its work.
#[test]
fn a_command_of_the_background_that_reads_the_terminal_is_reported() {
    let servers = Servers::start();
    let run = servers.run(&["--lease", "test/tty"], &["sh", "-c", "read x"]);
    // `script` gives its input, which stays open, to the terminal.
    let text = format!("bash -c 'set -m; {} & read y; kill -9 %1'", run.line().replace('\'', r"'\''"));
    let (mut running, mut keyboard, mut lines) = with_keyboard(&text);
    let told = lines.find(|line| line.contains("is stopped by SIGTTIN, and the lock stays held"));
    assert!(told.is_some());
    let _ = keyboard.write_all(b"\n");
    drop((keyboard, lines));
    running.wait();
}

/// The lines of `run` and a program beside it write to the terminal from the background.
#[test]
fn a_terminal_that_stops_writers_of_the_background_does_not_stop_the_renewals() {
    let servers = Servers::short();
    let run = servers.run(&["--lease", "test/tty"], &["sleep", "4"]);
    let text = format!(
        "bash -c 'set -m; stty tostop; {} | cat; echo code ${{PIPESTATUS[0]}}'",
        run.line().replace('\'', r"'\''")
    );
    let (mut running, _keyboard, mut lines) = with_keyboard(&text);
    let code = lines.find(|line| line.starts_with("code"));
    assert_eq!(code.as_deref().map(str::trim), Some("code 0"));
    running.wait();
}

/// A shell sets what is ignored. It must not remove variables whose names it cannot use, or hide that the command cannot be executed.
#[test]
fn on_a_terminal_the_environment_and_the_errors_are_the_same() {
    let servers = Servers::start();
    let options = ["--lease", "test/tty", "-q", "--hold-at-least", "3s"];
    let output = |line: &str| String::from_utf8(terminal(line).output().unwrap().stdout).unwrap();
    let missing = output(&format!("{}; echo code $?", servers.run(&options, &["/absent"]).line()));
    assert!(missing.contains("cannot execute /absent") && missing.contains("code 127"), "{missing}");
    assert!(!servers.is_locked("test/tty"), "a command that was never executed keeps nothing");
    // Shells set some of them, and others such as PWD.
    let expected = ["A=", "IFS=/", "OLDPWD=/old", "PS4=x", "SHLVL=7", "my.name=7"];
    let line = format!("env -i {} {}", expected.join(" "), servers.run(&options, &["/usr/bin/env"]).line());
    let variables = output(&line);
    let mut variables: Vec<&str> = variables.lines().filter(|line| !line.starts_with("REDISLEASE_")).collect();
    variables.sort_unstable();
    assert_eq!(variables, expected);
    let text = "[ $WATCHDOG_PID = $$ ] && echo its own";
    let line = format!("export WATCHDOG_PID=$$; exec {}", servers.run(&options, &["sh", "-c", text]).line());
    assert_eq!(output(&line).trim(), "its own");
}
