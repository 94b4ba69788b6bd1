//! Seccomp filters, such as those of hardened units of systemd.

use crate::support::{Servers, eventually};

/// Executes the arguments behind the first two under a filter: the number of a system call, and what it gets. The words of the filter are
/// `sock_filter`: load the number, skip the next word unless it is that of the call, the answer for this call, the one for all others.
const UNDER_FILTER: &str = "my ($call, $answer) = splice(@ARGV, 0, 2);
    my $filter = pack('SCCL' x 4, 0x20,0,0,0, 0x15,0,1,$call, 6,0,0,$answer, 6,0,0,0x7fff0000);
    my $program = pack('S x![P] P', 4, $filter);
    syscall(PRCTL, 38, 1, 0, 0, 0) == 0 or die; syscall(PRCTL, 22, 2, $program) == 0 or die; exec @ARGV";
/// The filter kills the process, or the call fails with EPERM.
const KILL: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;

const X86: bool = cfg!(target_arch = "x86_64");
const SETGID: u32 = if X86 { 106 } else { 144 };
const SETPRIORITY: u32 = if X86 { 141 } else { 140 };
const MOUNT: u32 = if X86 { 165 } else { 40 };
const UNSHARE: u32 = if X86 { 272 } else { 97 };
const TIMER_CREATE: u32 = if X86 { 222 } else { 107 };

/// The exit code and the errors of `run` under a filter.
fn under(servers: &Servers, call: u32, answer: u32, options: &[&str]) -> (Option<i32>, String) {
    let options: Vec<&str> = ["--lease", "test/filter"].iter().chain(options).copied().collect();
    let run = servers.run(&options, &["sh", "-c", "exit 6"]);
    let filter = UNDER_FILTER.replace("PRCTL", if X86 { "157" } else { "167" });
    let (code, _, err) = run.under("perl", &["-e", &filter, &call.to_string(), &answer.to_string()]).finish();
    (code, err)
}

#[test]
fn a_command_starts_although_a_filter_forbids_groups_priorities_and_namespaces() {
    let servers = Servers::start();
    for call in [SETGID, SETPRIORITY, MOUNT, UNSHARE] {
        for answer in [KILL, EPERM] {
            let (code, err) = under(&servers, call, answer, &[]);
            assert_eq!(code, Some(6), "{call} {answer:x}: {err}");
            let is_isolation = call == UNSHARE || (call, answer) == (MOUNT, KILL);
            assert!(!is_isolation || err.contains("isolation none"), "{call} {answer:x}: {err}");
        }
    }
    let (code, err) = under(&servers, MOUNT, KILL, &["--isolate", "pid"]);
    assert_eq!(code, Some(125), "{err}");
    assert!(err.contains("not possible here: a seccomp filter"), "{err}");
    assert!(!servers.is_locked("test/filter"));
}

/// It is no loss, which a service would repeat as fast as it can.
#[test]
fn a_guard_that_a_filter_ends_at_its_start_ends_a_service() {
    let servers = Servers::start();
    let (code, err) = under(&servers, TIMER_CREATE, KILL, &["--mode", "service", "--hold-at-least", "5s"]);
    assert_eq!(code, Some(125), "{err}");
    assert!(err.contains("cannot start the command: a seccomp filter"), "{err}");
    eventually("the release", || !servers.is_locked("test/filter"));
}
