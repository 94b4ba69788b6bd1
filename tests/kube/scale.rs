//! A small run of `make scale`, so that the tool keeps working.

use std::collections::BTreeSet;
use std::time::Duration;

use redislease_lab::Result;
use redislease_lab::scale::{Options, Phase, run};

#[test]
#[ignore = "make nightly"]
fn a_small_scale_run_measures_every_phase() -> Result<()> {
    let seconds = Duration::from_secs;
    let options = Options {
        lease_duration: seconds(8),
        renew_interval: seconds(2),
        grace_period: seconds(1),
        hold: seconds(3),
        outage: seconds(10),
        patience: seconds(60),
        failovers: 3,
        ..Options::new(env!("CARGO_BIN_EXE_redislease"), 50)
    };
    let report = run(&options, |_| {})?;
    assert!(report.failed.is_empty(), "{report}");
    let measured: BTreeSet<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(measured, Phase::ALL.map(Phase::as_str).into(), "{report}");
    // Times depend on the machine. These results do not.
    for name in [
        "hold: writes to the API server",
        "hold: leases that moved",
        "restart: leases lost",
        "outage: leases left behind",
        "outage: leases whose pods are labelled wrongly at the end",
    ] {
        let goal = report.goal(name).unwrap_or_else(|| panic!("{name} is not measured\n{report}"));
        assert!(goal.met, "{report}");
    }
    Ok(())
}
