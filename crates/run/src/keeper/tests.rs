//! What the keeper makes of events that are there at the same time.

use clap::Parser as _;

use super::*;
use crate::channel::Channel;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: RunOptions,
}

/// A keeper that has not begun to wait for its lock, on a server that is not there.
fn keeper() -> Keeper {
    let line = "run --redis redis://127.0.0.1:1 --single-node --lease a/b -- true";
    let options = Line::try_parse_from(line.split(' ')).unwrap().options;
    let locker = acquire::locker(&options).unwrap();
    let (status, _) = watch::channel(Status::new(&options.lease, "me"));
    Keeper::new(Arc::new(options), "me".to_owned(), locker, Incoming::new().unwrap(), Vec::new(), status)
}

/// Otherwise the code of a job that has done its work is 76, and a service runs its command again.
#[tokio::test]
async fn an_end_that_is_reported_before_a_loss_is_handled_counts() {
    let mut keeper = keeper();
    let (ours, theirs) = Channel::pair().unwrap();
    keeper.guard = Some(link::Guard::on(ours, Pid::this(), BootTime::now()).unwrap());
    let ended = Report::Ended(Outcome::Exited(0));
    theirs.send(&ended, None).unwrap();
    let lost = keeper.lost(Lost::Missing);
    assert!(matches!(lost, Event::Lost(_)), "{lost:?}");
    assert_eq!(keeper.events, [Event::Guard(ended)], "before the loss");
}
