//! How gently and over which ways a server is read: numbers of requests, certificates of
//! one's own, proxies, an address where nobody listens.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::binary::{Bench, Output};
use crate::support::dump::number;
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::faults::{Fault, Trouble};
use crate::support::fake_gitlab::model::{Kind, Model};
use crate::support::relay::relay;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A bench with one source at `url`.
fn bench(url: &str, more: &str) -> Bench {
    let mut bench = Bench::new();
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\nprojects = [\"group/project\"]\n\
             requests_per_second = 100000.0\nconcurrency = 8\n{more}\n"
        ),
    );
    bench.write(
        "once.toml",
        "name = \"once\"\n[defaults]\nretry = { max_attempts = 3, base = \"10ms\", max = \"5m\" }\n[steps.ingest]\n\
         [steps.fetch-discussions]\nneeds = [\"ingest\"]\nwith = { limit = 10000 }\n",
    );
    bench.var("GITLAB_TOKEN", "test-token");
    bench
}

fn once(bench: &Bench) -> Output {
    bench.lore(["run", "once.toml", "--quiet"])
}

fn fill(model: &mut Model, issues: i64, requests: i64) {
    let project = model.add_project("group/project");
    for (kind, n) in [(Kind::Issue, issues), (Kind::MergeRequest, requests)] {
        for number in 1..=n {
            let iid = model.add_item(project, kind, &format!("{kind:?} {number}"));
            model.add_note(project, kind, iid, "bo", "a note");
            // Far enough apart for the overlap of a run to be one page.
            model.advance(10_000);
        }
    }
    model.advance(3_600_000);
}

#[test]
fn a_first_sync_of_2000_items_takes_2100_requests_and_a_quiet_one_one_per_stream() {
    let server = FakeGitlab::start();
    server.edit(|model| fill(model, 1_500, 500));
    let bench = bench(&server.url(), "");
    once(&bench).ok();
    let first = server.take_log();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 2_000);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM pending_discussion_fetches"), 0);
    assert!(first.len() <= 2_100, "{} requests", first.len());
    once(&bench).ok();
    let mut quiet: Vec<String> = server
        .take_log()
        .into_iter()
        .map(|request| request.target.split('?').next().unwrap_or_default().to_owned())
        .collect();
    quiet.sort();
    let n_requests = quiet.len();
    quiet.dedup();
    assert_eq!(quiet.len(), n_requests, "one request per stream: {quiet:?}");
    assert!(n_requests <= 5, "project, labels, milestones, issues, merge requests: {quiet:?}");
}

#[test]
fn a_row_that_fails_even_alone_is_shown_and_holds_up_nothing() {
    let server = FakeGitlab::start();
    server.edit(|model| fill(model, 40, 3));
    let poison = vec!["\"Issue 7\"".to_owned()];
    server.plan(Fault::always("/issues?", Trouble::Poison(poison)));
    let bench = bench(&server.url(), "retry_wait = \"1ms\"\n");
    for _ in 0..3 {
        once(&bench).ok();
        assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 6, "what lies before");
    }
    bench.lore(["run", "once.toml", "--quiet", "--retry-failed"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 39);
    let status = bench.lore(["status"]).ok();
    assert!(status.contains("even alone"), "{status}");
    bench.lore(["run", "once.toml", "--quiet", "--strict"]).fails(21);
    server.heal();
    bench.lore(["run", "once.toml", "--quiet", "--retry-failed", "--strict"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 40);
    assert!(!bench.lore(["status"]).ok().contains("even alone"));
}

#[test]
fn an_address_where_nobody_listens_is_reported_after_a_few_attempts() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bench = bench(&format!("http://127.0.0.1:{port}"), "");
    let told = once(&bench).fails(8);
    assert!(told.contains("cannot connect"), "{told}");
    let requests = number(
        &bench.database(),
        "SELECT CAST(coalesce(sum(value), 0) AS INTEGER) FROM counters WHERE name LIKE '%requests%' AND labels LIKE '%none%'",
    );
    assert!((1..=6).contains(&requests), "{requests}: three attempts of the step, two requests in the first");
}

/// A server with four items and a note each.
fn small_server() -> FakeGitlab {
    let server = FakeGitlab::start();
    server.edit(|model| fill(model, 3, 1));
    server
}

fn upstream(server: &FakeGitlab) -> String {
    server.url().replace("http://", "")
}

fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

/// Puts TLS in front of a server, with a certificate that only our own authority vouches for;
/// returns the port. It lives as long as the process.
fn tls_before(server: &FakeGitlab) -> u16 {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(fixture("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(fixture("server.key")).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = upstream(server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, upstream) = (Arc::clone(&config), upstream.clone());
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream);
                relay(&mut stream, &upstream, |target| Some(target.to_owned()));
            });
        }
    });
    port
}

#[test]
fn bugs_45_api_84_a_private_authority_is_trusted_when_its_file_is_named() {
    let server = small_server();
    let port = tls_before(&server);
    let url = format!("https://127.0.0.1:{port}");
    let told = once(&bench(&url, "")).fails(8);
    assert!(told.contains("certificate") && told.contains("ca_file"), "{told}");
    let told = bench(&url, "").lore(["doctor", "--source", "main"]).fails(8);
    assert!(told.contains("ca_file"), "{told}");
    let trusting = bench(&url, &format!("ca_file = {:?}", fixture("ca.pem").display().to_string()));
    once(&trusting).ok();
    assert_eq!(number(&trusting.database(), "SELECT count(*) FROM notes"), 4);
    trusting.lore(["doctor", "--source", "main"]).ok();
    let other = bench(&url, &format!("ca_file = {:?}", fixture("server.key").display().to_string()));
    once(&other).fails(3);
}

#[test]
fn api_84_a_proxy_is_used_and_no_proxy_is_honoured() {
    let server = small_server();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let n_asked = Arc::new(AtomicUsize::new(0));
    let (seen, upstream) = (Arc::clone(&n_asked), upstream(&server));
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let (seen, upstream) = (Arc::clone(&seen), upstream.clone());
            std::thread::spawn(move || {
                // A name that nobody resolves: only the proxy can reach it.
                relay(&mut client, &upstream, |target| {
                    seen.fetch_add(1, Ordering::SeqCst);
                    target.strip_prefix("http://gitlab.test").map(str::to_owned)
                });
            });
        }
    });
    let mut bench = bench("http://gitlab.test", "");
    bench.var("HTTP_PROXY", &format!("http://{proxy}"));
    once(&bench).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 4);
    let n_before = n_asked.load(Ordering::SeqCst);
    assert!(n_before > 4);
    bench.var("NO_PROXY", "gitlab.test");
    once(&bench).fails(8);
    assert_eq!(n_asked.load(Ordering::SeqCst), n_before);
}

#[test]
fn api_84_https_goes_through_a_tunnel_of_the_proxy() {
    let server = small_server();
    let port = tls_before(&server);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || tunnel(client, port));
        }
    });
    let mut bench =
        bench("https://gitlab.test", &format!("ca_file = {:?}", fixture("ca.pem").display().to_string()));
    bench.var("HTTPS_PROXY", &format!("http://{proxy}"));
    once(&bench).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 4);
}

/// Answers one CONNECT and passes bytes on, both ways.
fn tunnel(mut client: TcpStream, port: u16) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if !head.starts_with("CONNECT gitlab.test:443 ") || head.contains("test-token") {
        drop(client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let up = std::thread::spawn(move || {
        drop(std::io::copy(&mut from_client, &mut to_server));
        drop(to_server.shutdown(Shutdown::Write));
    });
    drop(std::io::copy(&mut server, &mut client));
    drop(client.shutdown(Shutdown::Write));
    drop(up.join());
}
