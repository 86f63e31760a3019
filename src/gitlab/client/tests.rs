//! The client against a server that limits, fails, and is not there.

use std::sync::Mutex;

use super::*;
use crate::fake_gitlab::http::{HttpServer, Reply, Request};

fn client() -> Client {
    let config: GitlabConfig = toml::from_str("url = \"http://127.0.0.1:1\"").unwrap();
    Client::new(&config, None, None).unwrap()
}

#[test]
fn a6_18_waits_grow_are_capped_and_spread() {
    let client = client();
    for (failures, base_ms) in [(1, 1_000), (2, 2_000), (4, 8_000), (10, 30_000), (40, 30_000)] {
        let waits: BTreeSet<u128> = (0..50).map(|_| client.spread(failures).as_millis()).collect();
        assert!(waits.len() > 25, "{waits:?}");
        assert!(waits.iter().all(|wait| (base_ms / 2..=base_ms * 3 / 2).contains(wait)), "{waits:?}");
    }
}

#[test]
fn limits_and_tokens_that_cannot_work_are_refused() {
    for text in
        ["url = \"http://h\"\nrequests_per_second = 0.0", "url = \"http://h\"\nca_file = \"/no/such\""]
    {
        let config: GitlabConfig = toml::from_str(text).unwrap();
        assert_eq!(Client::new(&config, None, None).unwrap_err().kind(), ErrorKind::Config);
    }
    let config: GitlabConfig = toml::from_str("url = \"http://h\"").unwrap();
    let token = Secret::new("S3CR3T\u{1}".to_owned());
    let error = Client::new(&config, Some(token), None).unwrap_err();
    assert!(!format!("{error:?}").contains("S3CR3T"), "{error:?}");
}

/// A server, and a client of it that does not wait for long.
fn against(
    handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> (HttpServer, Client, GitlabConfig) {
    let server = HttpServer::start(move |request, _| handler(request));
    let text = format!(
        "url = \"http://{}\"\nrequests_per_second = 100000.0\nretries = 2\nretry_wait = \"1ms\"",
        server.authority()
    );
    let config: GitlabConfig = toml::from_str(&text).unwrap();
    let client = Client::new(&config, None, None).unwrap();
    (server, client, config)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn param(request: &Request, name: &str, default: usize) -> usize {
    request.param(name).and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One page of a list of `n` numbers, as GitLab tells it.
fn page_of(request: &Request, n: usize) -> Reply {
    let (page, per_page) = (param(request, "page", 1), param(request, "per_page", 20));
    let rows: Vec<usize> = (1..=n).skip((page - 1) * per_page).take(per_page).collect();
    let next = if page * per_page < n { (page + 1).to_string() } else { String::new() };
    Reply::json(200, &serde_json::json!(rows))
        .with("x-next-page", next)
        .with("x-per-page", per_page.to_string())
}

fn numbers(rows: &[Box<RawValue>]) -> Vec<usize> {
    rows.iter().map(|raw| raw.get().parse().unwrap()).collect()
}

#[test]
fn api_80_a_page_that_is_too_heavy_is_read_in_smaller_ones_and_no_row_is_lost_or_doubled() {
    // Row 130 is so heavy that the server brings it with at most four others.
    let (_server, client, _) = against(|request| {
        let (page, per_page) = (param(request, "page", 1), param(request, "per_page", 20));
        let first = (page - 1) * per_page + 1;
        if per_page > 5 && (first..first + per_page).contains(&130) {
            return Reply::text(500, "text/html", "<!DOCTYPE html>");
        }
        page_of(request, 250)
    });
    let rows = block_on(client.list(&client.list_url(&["projects"], &[]))).unwrap();
    assert_eq!(numbers(&rows), (1..=250).collect::<Vec<_>>());
    let again = block_on(client.list(&client.list_url(&["projects"], &[]))).unwrap();
    assert_eq!(numbers(&again), (1..=250).collect::<Vec<_>>(), "also while the size is restored");
    let size = client.list_url(&["projects"], &[]);
    assert!(paging::per_page(&size).unwrap() > 5, "{size}: larger pages again");
}

#[test]
fn api_79_a_whole_server_that_fails_is_given_up_after_a_bounded_number_of_requests() {
    let (_server, client, _) = against(|_| Reply::text(502, "text/html", "<!DOCTYPE html>"));
    let error = block_on(client.list(&client.list_url(&["projects"], &[]))).unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::Network);
    assert_eq!(client.stats().requests, 11, "twice in each of five sizes, the last one three times");
    block_on(client.list(&client.list_url(&["projects"], &[]))).unwrap_err();
    assert_eq!(client.stats().requests, 12, "the next one is tried once");
}

#[test]
fn api_76_a_limit_met_by_one_client_holds_its_sibling() {
    let limited = Mutex::new(true);
    let (_server, _, config) = against(move |request| {
        if std::mem::take(&mut *limited.lock().unwrap()) {
            return Reply::text(429, "text/plain", "Retry later").with("Retry-After", "100");
        }
        page_of(request, 1)
    });
    let budget = Arc::new(Client::budget(&config, Instant::now()));
    let patience = Patience { deadline: None, longest: Duration::from_secs(200) };
    let [first, second, impatient] = [200, 200, 50].map(|seconds| {
        let patience = Patience { longest: Duration::from_secs(seconds), ..patience };
        Client::sharing(&config, None, patience, Arc::clone(&budget)).unwrap()
    });
    let url = first.list_url(&["projects"], &[]);
    block_on(async {
        let refused = tokio::time::timeout(Duration::from_millis(200), first.page(&url)).await;
        assert!(refused.is_err(), "it waits");
        let held = tokio::time::timeout(Duration::from_millis(50), second.page(&url)).await;
        assert!(held.is_err(), "its sibling waits too");
        let error = impatient.page(&url).await.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::RateLimited, "more than retry.max");
        assert!(
            error.retry_after().is_some_and(|wait_ms| (90_000..=100_000).contains(&wait_ms)),
            "{error:?}"
        );
    });
    assert_eq!((second.stats().requests, impatient.stats().requests), (0, 0));
    assert!(second.stats().rate_limit_wait_ms > 90_000, "{:?}", second.stats());
    assert_eq!(budget.concurrency(), 2, "halved");
}

#[test]
fn api_76_a_service_that_says_when_it_is_back_is_believed() {
    let (_server, client, _) =
        against(|_| Reply::text(503, "text/plain", "maintenance").with("Retry-After", "7200"));
    let error = block_on(client.page(&client.list_url(&["projects"], &[]))).unwrap_err().error;
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::RateLimited, Some(7_200_000)));
    assert_eq!(client.stats().requests, 1);
}

#[test]
fn api_77_nothing_is_sent_when_nothing_is_left() {
    let (_server, client, _) = against(|request| {
        page_of(request, 1)
            .with("RateLimit-Remaining", "0")
            .with("RateLimit-Limit", "600")
            .with("RateLimit-Reset", "30")
    });
    let url = client.list_url(&["projects"], &[]);
    block_on(async {
        client.page(&url).await.unwrap();
        let held = tokio::time::timeout(Duration::from_millis(50), client.page(&url)).await;
        assert!(held.is_err());
    });
    assert_eq!(client.stats().requests, 1, "the limit is not met");
}

#[test]
fn an_address_where_nobody_listens_is_given_up_soon() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config: GitlabConfig = toml::from_str(&format!("url = \"http://127.0.0.1:{port}\"")).unwrap();
    let client = Client::new(&config, None, None).unwrap();
    let url = client.list_url(&["projects"], &[]);
    let error = block_on(client.page(&url)).unwrap_err().error;
    assert!(error.full_message().contains("cannot connect"), "{error}");
    assert!(client.stats().requests <= 3, "{:?}", client.stats());
}

#[test]
fn a_look_hands_out_whatever_comes() {
    let (_server, client, _) =
        against(|_| Reply::json(401, &serde_json::json!({"message": "401 Unauthorized"})));
    let look = block_on(client.look(&client.address().url(&["version"], &[]))).unwrap();
    assert_eq!(look.status, 401);
    assert!(look.read::<serde_json::Value>().is_none());
    assert!(matches!(answer::judge(&look.answer(None, 0)), Verdict::Refuse(_)));
}
