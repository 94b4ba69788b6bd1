//! The default owner, and the results that no other test has alone.

use redislease_lab::{pause, resume};
use redislease_locker::{AcquireError, Released};

use crate::support::{LONGEST, all_up, builder, eventually, locked, ms, on, once, three};

#[tokio::test]
async fn the_owner_is_host_process_and_a_random_word() {
    let (servers, first) = three().await;
    let second = on(&servers).await;
    let _guard = once(&first, "k").acquire().await.unwrap();
    let by = match once(&second, "k").acquire().await {
        Err(AcquireError::Held { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    assert_eq!(by, first.owner());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let process = format!("{}/{}/", host.trim(), std::process::id());
    let words = [&first, &second].map(|locker| locker.owner().strip_prefix(&process).unwrap().to_owned());
    let is_word = |word: &String| word.len() == 8 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(words.iter().all(is_word) && words[0] != words[1], "{words:?}");
}

#[tokio::test]
async fn a_release_that_no_majority_answers_is_queued() {
    let (servers, _) = three().await;
    let locker = builder(&servers).command_timeout(ms(500)).build().unwrap();
    all_up(&locker).await;
    let guard = once(&locker, "k").acquire().await.unwrap();
    pause(&servers[..2]).unwrap();
    assert_eq!(guard.release().await, Released::Queued);
    assert_eq!(locked(&servers[2..], "k"), 0, "the server that answers has deleted its key");
    resume(&servers[..2]).unwrap();
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
}

/// The servers count as voters until a command timeout has passed, and the attempt has only one interval of the renewals.
#[tokio::test]
async fn servers_that_answer_too_slowly_are_an_error_of_its_own() {
    let (servers, locker) = three().await;
    let request = once(&locker, "k").ttl(LONGEST).renew_every(ms(20));
    pause(&servers[..2]).unwrap();
    let error = request.acquire().await.unwrap_err();
    resume(&servers[..2]).unwrap();
    assert_eq!(error, AcquireError::TooSlow { key: "k".into() });
    let text = error.to_string();
    assert!(text.contains("\"k\"") && text.contains("answer slowly; try again"), "{text}");
    eventually("no key to be left", || locked(&servers, "k") == 0).await;
}
