use super::*;

#[test]
fn a_pipe_in_the_place_of_a_database_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("lore.db");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let error = open_file(&pipe, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.full_message().contains("no regular file"), "{}", error.full_message());
}

#[test]
fn a3_25_network_file_systems_are_known_by_number() {
    assert_eq!(network_fs_name(0x6969), Some("NFS"));
    assert_eq!(network_fs_name(0xFE53_4D42), Some("SMB2"));
    assert_eq!(network_fs_name(0x0102_1997), Some("9p"));
    assert_eq!(network_fs_name(0xEF53), None, "ext4");
    assert_eq!(network_fs_name(0x0102_1994), None, "tmpfs");
    assert_eq!(network_fs_name(0x794C_7630), None, "overlayfs");
}

#[test]
fn a_foreign_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    for version in [0, 1, 7] {
        #[expect(clippy::disallowed_methods, reason = "another program opens it its own way")]
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE IF NOT EXISTS recipes(id INTEGER)").unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        for opened in [open_writer(&path, OpenOptions::default()), open_reader(&path, OpenOptions::default())]
        {
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::DatabaseVersion, "version {version}");
        }
        assert!(std::fs::read(&path).unwrap() == before, "not one byte is changed");
    }
}

#[test]
fn a_file_of_somebody_else_is_said_to_be_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    migrate(&mut open_writer(&path, OpenOptions::default()).unwrap(), &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let error = explain_permission(&path, Error::new(ErrorKind::Io, "unable to open database file"));
    if std::fs::File::open(&path).is_ok() {
        assert!(error.hints().is_empty(), "root may open everything");
        return;
    }
    assert!(error.to_string().contains("denied"), "{error}");
    assert!(error.hints()[0].starts_with("it belongs to user "), "{:?}", error.hints());
}

#[test]
fn two_processes_may_make_the_same_database_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    let mut first = open_writer(&path, OpenOptions::default()).unwrap();
    migrate(&mut first, &path).unwrap();
    first
        .execute(
            "UPDATE app_lock SET owner = 'a', token = 1, heartbeat_at = ?1, lease_ms = 60000",
            [clock::now_ms()],
        )
        .unwrap();
    let mut second = open_writer(&path, OpenOptions::default()).unwrap();
    // As the second saw it before the first was done.
    migrate_from(&mut second, &path, 0).unwrap();
}

#[test]
fn sqlite_vec_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let connection = open_writer(&dir.path().join("x.db"), OpenOptions::default()).unwrap();
    let version: String = connection.query_row("SELECT vec_version()", [], |row| row.get(0)).unwrap();
    assert_eq!(version, "v0.1.9");
}
