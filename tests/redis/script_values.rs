//! What is compared and stored: attempts, tokens and their digits.

use super::*;

/// bsm/redislock compares a prefix of the value: a client with the token "ab" releases the lock of "abc".
#[tokio::test]
async fn a_part_of_an_attempt_or_of_a_token_is_another_one() {
    let mut server = Server::start().await;
    let grant = server.granted(&["k"], 0x12).await;
    for other in [0x1, 0x123] {
        for op in [confirm(other, grant, 50), extend(other, 50), seal(other)] {
            assert!(matches!(server.ask(&["k"], &op).await, Vote::Miss(Some(_))), "{op:?}");
        }
        assert_eq!(server.ask(&["k"], &release(other, Stages::All)).await, Vote::Released(0));
    }
    server.ask(&["k"], &confirm(0x12, grant, 50)).await;
    for op in [extend(0x1, 50), extend(0x123, 50), extend(0x12, 5), extend(0x12, 500), seal(0x1), seal(0x123)] {
        assert!(matches!(server.ask(&["k"], &op).await, Vote::Miss(Some(_))), "{op:?}");
    }
    for other in [0x1, 0x123] {
        assert_eq!(server.ask(&["k"], &release(other, Stages::All)).await, Vote::Released(0));
    }
    assert_eq!(server.value("k").as_deref(), Some("t:12:50:m"));
}

#[tokio::test]
async fn numbers_of_sixteen_digits_lose_none() {
    let mut server = Server::start().await;
    server.set("rl:fence", "1795238400000041");
    assert_eq!(server.granted(&["k"], 1).await, 1_795_238_400_000_042);
    assert_eq!(server.value("k").as_deref(), Some("p:1:1795238400000042:m"));
    server.ask(&["k"], &confirm(1, 1_795_238_400_000_042, 1_795_238_400_000_049)).await;
    assert_eq!(server.value("k").as_deref(), Some("t:1:1795238400000049:m"));
    assert_eq!(server.fence().as_deref(), Some("1795238400000049"));
    let near = server.ask(&["k"], &extend(1, 1_795_238_400_000_048)).await;
    assert!(matches!(near, Vote::Miss(Some(_))), "{near:?}");
    assert_eq!(server.ask(&["k"], &extend(1, 1_795_238_400_000_049)).await, Vote::Extended);
    assert_eq!(server.read_fence().await, (Allegiance::Ours, Token(1_795_238_400_000_049)));

    server.set("rl:fence", "9007199254740990");
    assert_eq!(server.granted(&["l"], 2).await, Token::END - 1, "the last token");
    let locks = [server.lock("m")];
    let value = server.call(&locks, &acquire(3)).await.unwrap();
    let answers = replies::read_votes(std::iter::once(&acquire(3)), plain(value)).unwrap().answer;
    assert!(format!("{answers:?}").contains("9007199254740992 is not below 2^53"), "{answers:?}");
}
