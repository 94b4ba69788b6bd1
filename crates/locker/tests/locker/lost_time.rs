//! The clock of the program stands still, as on a virtual machine that is paused or migrated.

use std::process::Command;
use std::time::Duration;

use redislease_locker::{AcquireError, Lost};

use crate::support::{LONGEST, PATIENCE, eventually, locked, ms, once, three};

/// The file with the time that the clock of this process has lost, see `redislease_lock::clock`.
const LOST_TIME: &str = "REDISLEASE_TEST_LOST_TIME";
/// More than the pauses that the validity covers.
const PAUSE: &str = "00000400";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the next test, in a process that loses time"]
async fn in_a_process_that_loses_time() {
    let (servers, locker) = three().await;
    let guard = once(&locker, "k").ttl(LONGEST).acquire().await.unwrap();
    // The servers are read about once a second, so all of them have a reading.
    tokio::time::sleep(ms(1500)).await;
    guard.verify().await.unwrap();
    let before = redislease_lock::clock::now();
    std::fs::write(std::env::var_os(LOST_TIME).unwrap(), PAUSE).unwrap();
    // The clock of a virtual machine continues where it stood. The clock of this test went back.
    eventually("the clock to show a new time", || redislease_lock::clock::now() > before).await;
    assert_eq!(guard.verify().await, Err(Lost::Expired), "the servers show the jump");
    assert_eq!(tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap(), Lost::Expired);
    drop(guard);
    // Every lock that was held then has to expire first, also one of another program whose attempt this one would now misjudge.
    match once(&locker, "other").acquire().await {
        Err(error @ AcquireError::ClockStoodStill { free_in, .. }) => {
            assert!(free_in > Duration::ZERO && free_in <= LONGEST + ms(50), "{free_in:?}");
            let text = error.to_string();
            assert!(text.contains("the clock of this process stood still"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    for server in &servers {
        let marker = server.command(&["GET", "redislease:marker"]).unwrap().text().unwrap();
        assert!(!marker.starts_with("wait:"), "the servers are not at fault: {marker}");
    }
    let next = locker.lock("other").wait(PATIENCE).acquire().await.unwrap();
    assert_eq!(next.check(), Ok(next.token()));
    drop(next);
    eventually("the keys of the lost lock to expire", || locked(&servers, "k") == 0).await;
}

#[test]
fn a_program_whose_clock_stood_still_ends_its_guards_and_waits_for_one_longest_lease() {
    let file = std::env::temp_dir().join(format!("redislease-lost-time-{}", std::process::id()));
    std::fs::write(&file, "00000000").unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "lost_time::in_a_process_that_loses_time", "--ignored"]);
    let done = process.env(LOST_TIME, &file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&done.stderr));
}
