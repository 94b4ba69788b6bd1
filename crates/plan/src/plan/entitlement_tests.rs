use super::*;
use redislease_core::lease::{TermId, TermView};
use redislease_core::op::Holder;

fn term() -> TermView {
    let id = TermId { attempt: Attempt(7), token: Token(42), holder: Holder("c/c-uid/n/l/a/uid-a".into()) };
    TermView { id, valid_until: None, stop_at: None, failed_rounds: 0 }
}

fn of(standing: Standing) -> View {
    View { standing, ..View::default() }
}

#[test]
fn which_pod_may_be_active() {
    let who = |view: Option<View>, recorded, known, undecided| {
        Entitlement::of(view.as_ref(), recorded, known, undecided, Token(42))
            .map(|entitlement| entitlement.holder.map(|(uid, _)| uid))
    };
    let (ours, other) = (Some(Attempt(7)), Some(Attempt(8)));
    let (pod, no_pod, unknown) = (Some(Some("uid-a".to_owned())), Some(None), None);
    let table = [
        (None, None, false, &no_pod, "no keeper, and no term in the status"),
        (None, ours, false, &unknown, "no keeper for the term in the status"),
        (Some(Standing::Held(term())), ours, true, &pod, "held and named"),
        (Some(Standing::Held(term())), None, false, &no_pod, "held, and not in the status yet"),
        (Some(Standing::Held(term())), other, false, &unknown, "the status names a term that is not known"),
        (Some(Standing::Publishing(term())), None, false, &no_pod, "not published yet"),
        (Some(Standing::Idle), ours, true, &no_pod, "lost, and the status does not say so yet"),
        (Some(Standing::Idle), ours, false, &unknown, "to be adopted"),
        (Some(Standing::Adopting(term())), ours, true, &unknown, "being adopted"),
    ];
    for (standing, recorded, known, expected, what) in table {
        assert_eq!(who(standing.map(of), recorded, known, true), *expected, "{what}");
    }
    let unconfirmed = || Some(of(Standing::Uncertain(term())));
    assert_eq!(who(unconfirmed(), ours, true, true), unknown);
    assert_eq!(who(unconfirmed(), ours, true, false), no_pod, "no replica contradicted it");
}
